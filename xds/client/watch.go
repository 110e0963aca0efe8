package client

import (
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// watch is a resource that is wanted, and what is known of it. It is the owner's.
type watch struct {
	key   resource.Key // its name is canonical
	names []string     // as they were wanted: all but always one, the key's
	state State

	// The last good value, whichever server it is from.
	item    resource.Item // set by Client.remember alone
	hash    uint64        // of its Raw
	version string
	updated time.Time
	// err and ambient are what was told last; nil after a value, and at first.
	err     error
	ambient bool

	rejection       *Rejection
	deletionIgnored bool
}

// good reports whether there is a value.
func (w *watch) good() bool { return w.item.Raw != nil }

// update is what is told of the resource under one of its names.
func (w *watch) update(name string) Update {
	u := Update{Version: w.version, Updated: w.updated, Err: w.err, Ambient: w.ambient}
	if w.err == nil {
		u.Item = w.item
	}
	u.Key = resource.Key{Type: w.key.Type, Name: name}
	return u
}

// told reports whether there was anything to tell.
func (w *watch) told() bool { return w.err != nil || w.good() }

func (w *watch) appendStatus(list []ResourceStatus, authority string) []ResourceStatus {
	for _, name := range w.names {
		list = append(list, ResourceStatus{
			Key:       resource.Key{Type: w.key.Type, Name: name},
			Authority: authority,
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
