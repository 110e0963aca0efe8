package client

import (
	"bytes"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// none is the active server of an authority of which nothing is wanted.
const none = -1

// authority is those resources whose names have the same authority, and the servers
// that have them.
type authority struct {
	// fixed
	client  *Client
	name    string
	configs []bootstrap.Server // in order of fallback, each once
	outbox  *mailbox[delivery]

	// heard is false while no server speaks; the owner writes it.
	heard atomic.Bool
	// using is the server in use, or nil; the owner writes it.
	using atomic.Pointer[bootstrap.Server]

	// owner only
	watches   map[resource.Type]map[string]*watch // by canonical name
	requested int                                 // watches that are in this state
	servers   []*server                           // those in use: as many as configs up to the active one
	spoke     []spoke                             // by place in configs
	batch     []Update                            // to be delivered
	started   bool                                // its delivery runs
}

// spoke is what is known of a server for Status, also when it is let go.
type spoke struct {
	connected bool
	since     time.Time
	err       error
	errAt     time.Time
}

func newAuthority(c *Client, name string, servers []bootstrap.Server) *authority {
	a := &authority{client: c, name: name, outbox: newMailbox[delivery](), watches: map[resource.Type]map[string]*watch{}}
	for _, s := range servers {
		if !slices.ContainsFunc(a.configs, func(o bootstrap.Server) bool { return o.Key() == s.Key() }) {
			a.configs = append(a.configs, s)
		}
	}
	a.spoke = make([]spoke, len(a.configs))
	return a
}

// active returns the place of the server in use, or none.
func (a *authority) active() int { return len(a.servers) - 1 }

// current returns the server in use; nil if there is none.
func (a *authority) current() *server {
	if len(a.servers) == 0 {
		return nil
	}
	return a.servers[a.active()]
}

// want begins to follow a resource. With an error no server can be asked for it.
func (a *authority) want(k resource.Key, err error) {
	name := k.Name
	k.Name = canonical(k.Name)
	w := a.watches[k.Type][k.Name]
	switch {
	case w == nil:
		w = &watch{key: k, names: []string{name}}
		if a.watches[k.Type] == nil {
			a.watches[k.Type] = map[string]*watch{}
		}
		a.watches[k.Type][k.Name] = w
		a.set(w, Requested)
	case slices.Contains(w.names, name):
		return
	default:
		w.names = append(w.names, name)
		if w.told() {
			a.batch = append(a.batch, w.update(name))
		}
		return
	}
	if err != nil {
		a.tell(w, err, false)
		return
	}
	if a.active() == none {
		a.use(0)
	}
	for _, s := range a.servers {
		s.subscribe(k)
	}
	a.fallBack()
	a.tellUnreachable(w)
}

// drop ends to follow a resource.
func (a *authority) drop(k resource.Key) {
	name := k.Name
	k.Name = canonical(k.Name)
	w := a.watches[k.Type][k.Name]
	if w == nil {
		return
	}
	if w.without(name); len(w.names) > 0 {
		return
	}
	a.set(w, "")
	a.client.remember(w, resource.Item{})
	delete(a.watches[k.Type], k.Name)
	for _, s := range a.servers {
		s.unsubscribe(k)
	}
	if len(a.watches[k.Type]) == 0 {
		delete(a.watches, k.Type)
	}
	if len(a.watches) == 0 {
		a.release(0)
	}
}

// set changes a watch's state. The empty one is that of what is dropped.
func (a *authority) set(w *watch, s State) {
	if w.state == Requested {
		a.requested--
	}
	if w.state = s; s == Requested {
		a.requested++
	}
}

// apply takes what a server sent.
func (a *authority) apply(s *server, r *response, now time.Time) {
	place := slices.Index(a.servers, s)
	if place < a.active() {
		a.returnTo(place)
	}
	watches := a.watches[r.kind]
	for i := range r.resources {
		got := &r.resources[i]
		w := watches[got.item.Key.Name]
		switch {
		case w == nil: // another authority's, or what nobody asked for
		case got.err != nil:
			a.reject(w, s, r, got.err, now)
		default:
			a.accept(w, s, r, got.item, now)
		}
	}
	if !r.whole() {
		return
	}
	names := s.subscriptions[r.kind].names
	for name, w := range watches {
		// One that is not asked for yet, the response cannot have.
		if _, there := r.places[name]; !there && w.good() && names[name].named && !names[name].late {
			a.remove(w, s, now)
		}
	}
}

// accept takes a good resource. One that is what it was changes nothing downstream,
// unless something else was told since.
func (a *authority) accept(w *watch, s *server, r *response, it resource.Item, now time.Time) {
	same := w.good() && bytes.Equal(w.item.Raw, it.Raw)
	a.set(w, Acked)
	w.version, w.rejection, w.deletionIgnored = r.version, nil, false
	if same && w.err == nil {
		a.client.count(s, r.kind, UpdateUnchanged)
		return
	}
	if !same {
		a.client.remember(w, it)
		w.updated = now
	}
	a.client.count(s, r.kind, UpdateValid)
	a.tell(w, nil, false)
}

// reject takes a resource that breaks rules. The last good one stays. The same
// reason is not told twice.
func (a *authority) reject(w *watch, s *server, r *response, err error, now time.Time) {
	a.client.count(s, r.kind, UpdateInvalid)
	known := w.rejection != nil && w.rejection.Err.Error() == err.Error()
	w.rejection = &Rejection{Version: r.version, Err: err, At: now}
	if w.good() {
		a.set(w, NackedButCached)
	} else {
		a.set(w, Nacked)
	}
	if known {
		return
	}
	a.client.tell(Rejected{Server: s.config.URI, Key: w.key, Version: r.version, Err: err})
	a.tell(w, &RejectedError{Key: w.key, Server: s.config.URI, Version: r.version, Err: err}, w.good())
}

// remove takes notice that a response is without a resource that was there.
func (a *authority) remove(w *watch, s *server, now time.Time) {
	if s.config.IgnoreResourceDeletion {
		if !w.deletionIgnored {
			w.deletionIgnored = true
			a.client.tell(DeletionIgnored{Server: s.config.URI, Key: w.key})
		}
		return
	}
	a.lose(w, DoesNotExist, now)
	a.tell(w, &NotFoundError{Key: w.key, Server: s.config.URI}, false)
}

// expire takes notice that a server did not send what it was asked for, or anything
// at all. What is there, from another server, stays.
func (a *authority) expire(k resource.Key, s *server, silent bool, now time.Time) {
	w := a.watches[k.Type][k.Name]
	if w == nil || s != a.current() {
		return
	}
	var err error = &NotFoundError{Key: w.key, Server: s.config.URI, Expired: true}
	if silent {
		err = &SilentError{Key: w.key, Server: s.config.URI}
	}
	_, doubted := w.err.(*SilentError) //nolint:errorlint // it is never wrapped
	if w.state != Requested && (!doubted || silent) {
		return
	}
	a.lose(w, Timeout, now)
	a.tell(w, err, false)
}

// lose forgets what was good.
func (a *authority) lose(w *watch, s State, now time.Time) {
	a.set(w, s)
	a.client.remember(w, resource.Item{})
	w.version, w.updated, w.rejection = "", now, nil
}

// tell puts what became of a resource into the batch: an error, or nil for its
// value.
func (a *authority) tell(w *watch, err error, ambient bool) {
	w.err, w.ambient = err, ambient
	for _, name := range w.names {
		a.batch = append(a.batch, w.update(name))
	}
}

func (a *authority) wanted() int {
	n := 0
	for _, watches := range a.watches {
		n += len(watches)
	}
	return n
}

func (a *authority) appendResources(list []ResourceStatus) []ResourceStatus {
	for _, watches := range a.watches {
		for _, w := range watches {
			list = w.appendStatus(list, a.name)
		}
	}
	return list
}
