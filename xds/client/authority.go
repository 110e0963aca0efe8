package client

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// none is the active place of an authority without a server.
const none = -1

// authorityConfig is an authority of the bootstrap. All targets share it.
type authorityConfig struct {
	// fixed
	name    string             // "" for names without an authority
	servers []bootstrap.Server // in order of fallback, each once
	outbox  *mailbox[delivery]

	// owner only
	batch   []Update // not yet in the outbox
	started bool     // the goroutine that empties the outbox runs
}

func newAuthorityConfig(name string, servers []bootstrap.Server) *authorityConfig {
	c := &authorityConfig{name: name, outbox: newMailbox[delivery]()}
	for _, s := range servers {
		if !slices.ContainsFunc(c.servers, func(o bootstrap.Server) bool { return o.Key() == s.Key() }) {
			c.servers = append(c.servers, s)
		}
	}
	return c
}

// place returns the place of a server in the order of fallback.
func (c *authorityConfig) place(s *server) int {
	return slices.IndexFunc(c.servers, func(o bootstrap.Server) bool { return o.Key() == s.config.Key() })
}

// authorityKey identifies an authority: there is one for each target and each
// authority of the bootstrap that the target needs resources of.
type authorityKey struct {
	target string
	config *authorityConfig
}

// authority holds the watches of one target for the names of one authority: their
// cached values, and the servers in use. It is what gRFC A71 calls an XdsClient for
// a data plane target. Nothing in it changes because of another target.
type authority struct {
	// fixed
	client *Client
	key    authorityKey

	// connected is true while a server in use has answered on its current stream;
	// the owner writes it.
	connected atomic.Bool
	// using is the server in use; the owner writes it.
	using atomic.Pointer[bootstrap.Server]

	// owner only
	watches   map[resource.Key]*watch // by canonical name
	requested int                     // watches whose state is unknown
	servers   []*server               // those in use: the first ones of the config, up to the active one
}

// active returns the place of the active server in the config, or none.
func (a *authority) active() int { return len(a.servers) - 1 }

// current returns the active server; nil if there is none.
func (a *authority) current() *server {
	if len(a.servers) == 0 {
		return nil
	}
	return a.servers[a.active()]
}

// want starts a watch. With an error, no server can be asked for the resource.
func (a *authority) want(k resource.Key, err error) {
	name := k.Name
	k.Name = canonical(k.Name)
	w := a.watches[k]
	if w != nil {
		if !slices.Contains(w.names, name) {
			w.names = append(w.names, name)
			a.repeat(w, name)
		}
		return
	}
	w = &watch{key: k, authority: a, names: []string{name}, place: none, errPlace: none}
	a.watches[k] = w
	a.set(w, Requested)
	if err != nil {
		a.notify(w, err, false, none)
		return
	}
	if a.active() == none {
		a.use(0)
	} else {
		for _, s := range a.servers {
			s.addWatch(w)
		}
		a.adoptPreferred(w)
		a.adopt(w)
	}
	a.fallBack()
	a.notifyUnreachable(w)
}

// drop ends a watch. Client.forget releases the servers after the last one.
func (a *authority) drop(k resource.Key) {
	name := k.Name
	k.Name = canonical(k.Name)
	w := a.watches[k]
	if w == nil {
		return
	}
	if w.without(name); len(w.names) > 0 {
		return
	}
	a.set(w, "")
	delete(a.watches, k)
	for _, s := range a.servers {
		s.removeWatch(w)
	}
}

// set changes the state of a watch. The empty state is that of a dropped watch.
func (a *authority) set(w *watch, s State) {
	if w.state.unknown() {
		a.requested--
	}
	if w.state = s; s.unknown() {
		a.requested++
	}
}

// handle applies what a server has just said of a resource. A preferred server
// becomes the active one again when it sends a usable resource of this target, or
// no longer has one that it had (gRFC A71); not when it has nothing to offer.
func (a *authority) handle(w *watch, r *serverResource) {
	place := slices.Index(a.servers, r.server)
	if place < a.active() {
		if !r.decisive() {
			return
		}
		a.returnTo(place)
	}
	a.apply(w, r, place)
}

// adoptPreferred returns to a server that is preferred to the active one if it has said
// something decisive of a resource on its current stream, because another target asked
// it: it does not say it again.
func (a *authority) adoptPreferred(w *watch) {
	for place, s := range a.servers[:a.active()] {
		if r := s.resource(w.key); r.known() && r.confirmed() && r.decisive() {
			a.returnTo(place)
			return
		}
	}
}

// adopt applies what the active server said before this target asked it. A value of
// an earlier stream counts only if the target has nothing else: it may be about to be
// replaced. An error of an earlier stream does not count, since the target would not
// fall back for the resource: the server gets its time again.
func (a *authority) adopt(w *watch) {
	s := a.current()
	switch r := s.resource(w.key); {
	case !r.known():
	case r.confirmed(), r.good() && w.state.unknown():
		a.apply(w, r, a.active())
	case w.state.unknown():
		s.retry(r)
	}
}

func (a *authority) apply(w *watch, r *serverResource, place int) {
	if r.good() && (!w.good() || r.problem() == nil) {
		a.accept(w, r, place)
	}
	if r.problem() != nil {
		a.handleError(w, r, place)
	}
}

// accept takes a value. One that equals the cached one is not reported, unless an
// error was reported since.
func (a *authority) accept(w *watch, r *serverResource, place int) {
	same := w.good() && bytes.Equal(w.item.Raw, r.item.Raw)
	a.set(w, Acked)
	w.place, w.version, w.rejection = place, r.version, nil
	if same && w.err == nil {
		return
	}
	if !same {
		w.item, w.updated = r.item, r.updated
	}
	a.notify(w, nil, false, place)
}

// handleError applies an error that a server caused. It follows gRFC A88: a cached
// value stays in use, with the error as an ambient one. A data error of a server with
// fail_on_data_errors drops it instead, but not if a more preferred server provided it:
// that server cannot be reached, and has not withdrawn it; nor if another server
// provided it, and this one never had the resource. An error that was reported is not
// reported again.
func (a *authority) handleError(w *watch, r *serverResource, place int) {
	err := r.problem()
	drop := isDataError(err) && r.server.config.FailOnDataErrors && (w.place == place || !r.neverHad())
	if w.good() && (w.place < place || !drop) {
		if isTimeout(err) {
			return
		}
		if w.place >= place {
			w.rejection = r.rejection
			a.set(w, stateOf(err, true))
		}
		if w.err != err { //nolint:errorlint // the same error, not an equal one
			a.notify(w, err, true, place)
		}
		return
	}
	w.rejection = r.rejection
	a.set(w, stateOf(err, false))
	if w.err == err && !w.good() { //nolint:errorlint // the same error, not an equal one
		return
	}
	w.item, w.place = resource.Item{}, none
	w.version, w.updated, w.final = "", r.updated, drop
	a.notify(w, err, false, place)
}

// notify adds the state of a watch to the batch: an error that the server at place
// caused, or nil for the value.
func (a *authority) notify(w *watch, err error, ambient bool, place int) {
	w.final = w.final && err != nil && !ambient
	w.err, w.ambient, w.errPlace = err, ambient, place
	for _, name := range w.names {
		a.key.config.batch = append(a.key.config.batch, w.update(name))
	}
}

// repeat adds what was reported of a watch to the batch, for another form of its
// name.
func (a *authority) repeat(w *watch, name string) {
	batch := &a.key.config.batch
	if w.good() {
		*batch = append(*batch, w.value(name))
	}
	if w.err != nil {
		*batch = append(*batch, w.update(name))
	}
}
