package client

import (
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// watch is a resource that a target wants, and what is cached of it. It belongs to
// the owner.
type watch struct {
	key       resource.Key // its name is canonical
	authority *authority
	names     []string // as they were wanted: nearly always one, the key's
	state     State

	// The last good value, and the place of the server that provided it.
	item    resource.Item
	place   int
	version string
	updated time.Time
	// err and ambient are what was reported last, nil after a value and at first;
	// errPlace is the place of the server that caused err.
	err      error
	ambient  bool
	errPlace int
	final    bool // see Update.Final

	rejection *Rejection
}

// good reports whether there is a value.
func (w *watch) good() bool { return w.item.Raw != nil }

// update returns what is reported of the resource under one of its names.
func (w *watch) update(name string) Update {
	u := w.value(name)
	if w.err != nil {
		u.Item, u.Err, u.Ambient, u.Final = resource.Item{Key: u.Key}, w.err, w.ambient, w.final
		u.Server, u.Fallback = w.serverAt(w.errPlace), w.errPlace > 0
	}
	return u
}

// value returns the value of the resource under one of its names.
func (w *watch) value(name string) Update {
	u := Update{
		Target: w.authority.key.target, Item: w.item, Version: w.version, Updated: w.updated,
		Server: w.serverAt(w.place), Fallback: w.place > 0,
	}
	u.Key = resource.Key{Type: w.key.Type, Name: name}
	return u
}

// serverAt returns the URI of the server at a place.
func (w *watch) serverAt(place int) string {
	if place == none {
		return ""
	}
	return w.authority.key.config.servers[place].URI
}

func (w *watch) appendStatus(list []ResourceStatus) []ResourceStatus {
	server := ""
	if s := w.authority.current(); s != nil {
		server = s.config.URI
	}
	for _, name := range w.names {
		list = append(list, ResourceStatus{
			Target:    w.authority.key.target,
			Key:       resource.Key{Type: w.key.Type, Name: name},
			Authority: w.authority.key.config.name,
			Server:    server,
			State:     w.state,
			Version:   w.version,
			Updated:   w.updated,
			Rejection: w.rejection,
			Err:       w.err,
		})
	}
	return list
}

// without takes a name away.
func (w *watch) without(name string) {
	w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name })
}
