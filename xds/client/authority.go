package client

import (
	"bytes"
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

const noServer = -1

// authority has the watchers of one target for the names of one authority of the
// bootstrap: their cached values, and the servers in use. It is what gRFC A71 calls an
// XdsClient for a data plane target. No other target changes its state.
type authority struct {
	// fixed
	key   authorityKey
	pool  *channelPool
	moves *serverMoves

	// Written by the owner. connected is true while a server in use has responded on
	// its current stream; using is the active server.
	connected atomic.Bool
	using     atomic.Pointer[bootstrap.Server]

	// owner only
	watchers map[resource.Key]*watcher // by canonical name
	unknown  int                       // watchers whose state is unknown
	channels []*xdsChannel             // to the first servers of the config, up to the active one
}

// active returns the index of the active server in the config, or noServer.
func (a *authority) active() int { return len(a.channels) - 1 }

// current returns the channel to the active server; nil if there is none.
func (a *authority) current() *xdsChannel {
	if len(a.channels) == 0 {
		return nil
	}
	return a.channels[a.active()]
}

// watch adds a watcher. If err is not nil, no server can be asked for the resource.
func (a *authority) watch(k resource.Key, err *ResourceError) {
	name := k.Name
	k.Name = canonical(k.Name)
	w := a.watchers[k]
	if w != nil {
		if !slices.Contains(w.names, name) {
			w.names = append(w.names, name)
			a.repeat(w, name)
		}
		return
	}
	w = &watcher{key: k, authority: a, names: []string{name}, index: noServer, errIndex: noServer}
	a.watchers[k] = w
	a.setState(w, Requested)
	if err != nil {
		a.notify(w, err, false, noServer)
		return
	}
	if a.active() == noServer {
		a.useNext()
	} else {
		for _, ch := range a.channels {
			ch.addWatcher(w.key, w)
		}
		a.returnForCached(w)
		a.applyCached(w)
	}
	a.fallBack()
	a.notifyUnreachable(w)
}

// unwatch removes a watcher. Client.removeIfUnused releases the servers after the last one.
func (a *authority) unwatch(k resource.Key) {
	name := k.Name
	k.Name = canonical(k.Name)
	w := a.watchers[k]
	if w == nil {
		return
	}
	if w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == name }); len(w.names) > 0 {
		return
	}
	a.setState(w, "")
	delete(a.watchers, k)
	for _, ch := range a.channels {
		ch.removeWatcher(w.key, w)
	}
}

// setState changes the state of a watcher. A removed watcher has the state "".
func (a *authority) setState(w *watcher, s State) {
	if w.state.unknown() {
		a.unknown--
	}
	if w.state = s; s.unknown() {
		a.unknown++
	}
}

// handle applies what a server just sent for a resource. A preferred server becomes the
// active one again if that is decisive (gRFC A71).
func (a *authority) handle(w *watcher, r *resourceState) {
	index := slices.IndexFunc(a.channels, func(ch *xdsChannel) bool { return ch.server == r.server })
	if index < a.active() {
		if !r.decisive() {
			return
		}
		a.returnTo(index)
	}
	a.apply(w, r, index)
}

// returnForCached returns to a preferred server that sent something decisive to another
// target on its current stream: the server does not send it again.
func (a *authority) returnForCached(w *watcher) {
	for index, ch := range a.channels[:a.active()] {
		if r := ch.resource(w.key); r.settled() && ch.confirmed(r) && r.decisive() {
			a.returnTo(index)
			return
		}
	}
}

// applyCached applies what the active server sent to other targets. A value of an
// earlier stream counts only if the target has no other: it may be replaced soon. An
// error of an earlier stream does not count, and the timeout starts again: otherwise the
// target would not fall back for the resource.
func (a *authority) applyCached(w *watcher) {
	ch := a.current()
	switch r := ch.resource(w.key); {
	case !r.settled():
	case ch.confirmed(r), r.hasValue() && w.state.unknown():
		a.apply(w, r, a.active())
	case w.state.unknown():
		ch.restartTimeout(r)
	}
}

func (a *authority) apply(w *watcher, r *resourceState, index int) {
	err := cmp.Or(r.err, r.reason) // what watchers get; nil for a value
	if r.hasValue() && (!w.hasValue() || err == nil) {
		a.accept(w, r, index)
	}
	if err != nil {
		a.handleError(w, r, err, index)
	}
}

// accept takes a value. It reports one that equals the cached one only after an error.
func (a *authority) accept(w *watcher, r *resourceState, index int) {
	same := w.hasValue() && bytes.Equal(w.item.Raw, r.item.Raw)
	a.setState(w, Acked)
	w.index, w.version, w.rejection = index, r.version, nil
	if same && w.err == nil {
		return
	}
	if !same {
		w.item, w.updated = r.item, r.updated
	}
	a.notify(w, nil, false, index)
}

// handleError applies an error that a server caused. As in gRFC A88, a cached value stays
// in use with an ambient error; a data error of a server with fail_on_data_errors drops
// it. It does not if the value is from a more preferred server, which is unreachable and
// has not withdrawn it; nor if it is from another server and this one never sent the
// resource. The same error is reported once.
func (a *authority) handleError(w *watcher, r *resourceState, err *ResourceError, index int) {
	drop := err.isDataError() && r.server.FailOnDataErrors && (w.index == index || !r.neverSent())
	if w.hasValue() && (w.index < index || !drop) {
		if err.isTimeout() {
			return
		}
		if w.index >= index {
			w.rejection = r.rejection
			a.setState(w, err.state(true))
		}
		if w.err != err {
			a.notify(w, err, true, index)
		}
		return
	}
	w.rejection = r.rejection
	a.setState(w, err.state(false))
	if w.err == err && !w.hasValue() {
		return
	}
	w.item, w.index = resource.Item{}, noServer
	w.version, w.updated, w.final = "", r.updated, drop
	a.notify(w, err, false, index)
}

// notify queues the update of a watcher: an error that the server at index caused, or
// nil for the value.
func (a *authority) notify(w *watcher, err *ResourceError, ambient bool, index int) {
	w.final = w.final && err != nil && !ambient
	w.err, w.ambient, w.errIndex = err, ambient, index
	for _, name := range w.names {
		a.queue(w.update(name))
	}
}

// repeat queues the last updates of a watcher for another form of its name.
func (a *authority) repeat(w *watcher, name string) {
	if w.hasValue() {
		a.queue(w.value(name))
	}
	if w.err != nil {
		a.queue(w.update(name))
	}
}

func (a *authority) queue(u Update) {
	q := &a.key.config.updates
	q.pending = append(q.pending, u)
}
