package client

import (
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// watcher is a resource that a target wants, and its cached value. Owner only.
type watcher struct {
	key       resource.Key // with the canonical name
	authority *authority
	names     []string // as they were wanted: usually one, that of key
	state     State

	// The last good value, and the index of the server that provided it.
	item    resource.Item
	index   int
	version string
	updated time.Time
	// err and ambient are those of the last update: nil at first, and after a value.
	// errIndex is the index of the server that caused err.
	err      *ResourceError
	ambient  bool
	errIndex int
	final    bool // see Update.Final

	rejection *Rejection
}

func (w *watcher) resourceChanged(r *resourceState) { w.authority.handle(w, r) }

func (w *watcher) resourceAbsent(r *resourceState) {
	if a := w.authority; w.hasValue() && a.current().server == r.server {
		a.apply(w, r, a.active())
	}
}

func (w *watcher) hasValue() bool { return w.item.Raw != nil }

// update returns the last update for one of the names.
func (w *watcher) update(name string) Update {
	u := w.value(name)
	if w.err != nil {
		u.Item, u.Err, u.Ambient, u.Final = resource.Item{Key: u.Key}, w.err, w.ambient, w.final
		u.Server, u.Fallback = w.serverURI(w.errIndex), w.errIndex > 0
	}
	return u
}

// value returns the cached value for one of the names.
func (w *watcher) value(name string) Update {
	u := Update{
		Target: w.authority.key.target, Item: w.item, Version: w.version, Updated: w.updated,
		Server: w.serverURI(w.index), Fallback: w.index > 0,
	}
	u.Key = resource.Key{Type: w.key.Type, Name: name}
	return u
}

func (w *watcher) serverURI(index int) string {
	if index == noServer {
		return ""
	}
	return w.authority.key.config.servers[index].URI
}
