package client

import (
	"bytes"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// serverResource is one resource that a server is asked for: what the server said of
// it last, and the watches that want it. All targets that use the server share it, so
// that a value is decoded, compared and counted once, and a target that asks later is
// answered at once: the server does not send again what it has sent on the stream.
// It belongs to the owner.
type serverResource struct {
	// fixed
	server *server
	key    resource.Key // its name is canonical

	watches map[*watch]struct{}

	// stream is the one on which the server said or confirmed the rest.
	stream *stream
	// item is the last good value; hash is of its Raw. Client.remember sets both.
	item    resource.Item
	hash    uint64
	version string    // of item
	updated time.Time // when item, or err, became what it is
	// rejection and reason say why the last version was rejected; nil if it was not.
	rejection *Rejection
	reason    error
	// err is why there is no value, or why the server no longer confirms the one that
	// it sent: a *NotFoundError, a *ResourceError, a *SilentError or a *TimeoutError;
	// nil before the server said anything, and after a value.
	err error
	// absent is that a response came without it before the server's time was over.
	absent error
}

// good reports whether the server provided a value that counts.
func (r *serverResource) good() bool { return r.item.Raw != nil }

// known reports whether the server said anything, or let its time pass.
func (r *serverResource) known() bool { return r.good() || r.rejection != nil || r.err != nil }

// silent reports whether all that is known is that the server said nothing at all.
func (r *serverResource) silent() bool {
	_, ok := r.err.(*SilentError) //nolint:errorlint // it is never wrapped
	return ok
}

// confirmed reports whether what is known is of the server's current stream.
func (r *serverResource) confirmed() bool { return r.stream != nil && r.stream == r.server.stream }

// decisive reports whether what is known makes targets return to the server from one
// that they prefer less: a usable value, or the end of one.
func (r *serverResource) decisive() bool {
	if r.err != nil {
		return isDataError(r.err) && !isTimeout(r.err)
	}
	return r.rejection == nil
}

// neverHad reports whether all that is known is that the server did not send it.
func (r *serverResource) neverHad() bool {
	return r.err != nil && (r.err == r.absent || isTimeout(r.err)) //nolint:errorlint // the same error, not an equal one
}

// problem returns the error that the last response, or its absence, means for those
// who want the resource; nil for a value.
func (r *serverResource) problem() error {
	if r.err != nil {
		return r.err
	}
	return r.reason
}

// resource returns what is known of a resource that the server is asked for.
func (s *server) resource(k resource.Key) *serverResource { return s.resources[k.Type][k.Name] }

// addWatch asks the server for what a watch wants.
func (s *server) addWatch(w *watch) {
	k := w.key
	if r := s.resource(k); r != nil {
		r.watches[w] = struct{}{}
		return
	}
	if s.resources[k.Type] == nil {
		s.resources[k.Type] = map[string]*serverResource{}
	}
	s.resources[k.Type][k.Name] = &serverResource{server: s, key: k, watches: map[*watch]struct{}{w: {}}}
	s.subscribe(k)
}

// retry gives the server its time again to send a resource of which all that is known
// is an error of an earlier stream.
func (s *server) retry(r *serverResource) {
	t := s.subscriptions[r.key.Type]
	sub := t.names[r.key.Name]
	switch {
	case sub.stage == unasked || sub.stage == asked: // it has it
	case s.stream == nil || !sub.named:
		sub.stage = unasked
	default:
		sub.stage = asked
		s.expireLater(s.stream, t, []*subscription{sub})
	}
}

// removeWatch ends what addWatch began. What nobody wants any more is forgotten.
func (s *server) removeWatch(w *watch) {
	r := s.resource(w.key)
	if r == nil {
		return
	}
	delete(r.watches, w)
	if len(r.watches) > 0 {
		return
	}
	s.client.remember(r, resource.Item{})
	delete(s.resources[w.key.Type], w.key.Name)
	s.unsubscribe(w.key)
}

// notify hands what the server said of a resource to all that want it.
func (s *server) notify(r *serverResource) {
	for w := range r.watches {
		w.authority.handle(w, r)
	}
}

// apply takes the resources of a response.
func (s *server) apply(m *response, now time.Time) {
	resources := s.resources[m.kind]
	for i := range m.resources {
		got := &m.resources[i]
		r := resources[got.item.Key.Name]
		switch {
		case r == nil: // nobody asked for it
		case got.err != nil:
			s.reject(r, m, got.err, now)
		default:
			s.accept(r, m, got.item, now)
		}
	}
	for i := range m.errors {
		if r := resources[m.errors[i].name]; r != nil {
			s.receiveError(r, &m.errors[i], now)
		}
	}
	if !m.whole() {
		return
	}
	names := s.subscriptions[m.kind].names
	for name, r := range resources {
		// The response may be older than the request for a name.
		if _, there := m.places[name]; !there && names[name].named && !names[name].late {
			s.remove(r, now)
		}
	}
}

// accept takes a good resource.
func (s *server) accept(r *serverResource, m *response, it resource.Item, now time.Time) {
	same := r.good() && bytes.Equal(r.item.Raw, it.Raw)
	result := UpdateUnchanged
	if !same || r.rejection != nil {
		result = UpdateValid
	}
	s.client.count(s, m.kind, result)
	if !same {
		s.client.remember(r, it)
		r.updated = now
	}
	r.stream, r.version = s.stream, m.version
	r.rejection, r.reason, r.err = nil, nil, nil
	s.notify(r)
}

// reject takes an invalid resource.
func (s *server) reject(r *serverResource, m *response, err error, now time.Time) {
	s.client.count(s, m.kind, UpdateInvalid)
	known := r.rejection != nil && r.rejection.Err.Error() == err.Error()
	r.stream, r.err = s.stream, nil
	r.rejection = &Rejection{Version: m.version, Err: err, At: now}
	if !known {
		r.reason = &RejectedError{Key: r.key, Server: s.config.URI, Version: m.version, Err: err}
		s.client.tell(Rejected{Server: s.config.URI, Key: r.key, Version: m.version, Err: err})
	}
	if s.config.FailOnDataErrors && r.good() {
		s.client.remember(r, resource.Item{})
		r.version, r.updated = "", now
	}
	s.notify(r)
}

// receiveError takes an error that the server reports for a resource.
func (s *server) receiveError(r *serverResource, e *resourceError, now time.Time) {
	err := e.err(r.key, s.config.URI)
	if r.err != nil && r.err.Error() == err.Error() {
		r.stream = s.stream
		s.notify(r)
		return
	}
	s.fail(r, err, now)
}

// fail records a data error, or an error that the server reports, and reports it. That a
// name never existed is no event: anybody can invent names.
func (s *server) fail(r *serverResource, err error, now time.Time) {
	_, missing := err.(*NotFoundError) //nolint:errorlint // it is never wrapped
	invented := missing && !r.good()
	if !r.good() || s.config.FailOnDataErrors && isDataError(err) {
		s.lose(r, err, now)
	} else {
		r.stream, r.rejection, r.reason, r.err = s.stream, nil, nil, err
	}
	if !invented {
		s.client.tell(DataError{Server: s.config.URI, Key: r.key, Err: err, Cached: r.good()})
	}
	s.notify(r)
}

// remove takes notice that a response came without a resource. A server reports an
// error only once, so it stays the reason.
func (s *server) remove(r *serverResource, now time.Time) {
	if r.good() {
		if r.err == nil {
			s.fail(r, &NotFoundError{Key: r.key, Server: s.config.URI}, now)
		}
		return
	}
	if r.rejection != nil || r.decisive() && r.known() {
		return
	}
	// The server never had it. It has its time to send it to the targets that have
	// nothing; for those that have another server's value, this is the answer.
	if r.absent == nil {
		r.absent = &NotFoundError{Key: r.key, Server: s.config.URI}
	}
	answer := &serverResource{server: s, key: r.key, err: r.absent, absent: r.absent, updated: now}
	for w := range r.watches {
		if a := w.authority; w.good() && a.current() == s {
			a.apply(w, answer, a.active())
		}
	}
}

// expire takes notice that the server did not send a resource in time, or anything
// at all.
func (s *server) expire(r *serverResource, silent bool, now time.Time) {
	if r == nil || r.good() {
		return
	}
	if r.rejection != nil { // on an earlier stream
		r.stream = s.stream
		s.notify(r)
		return
	}
	var err error
	switch {
	case s.config.ResourceTimerIsTransientError:
		err = &TimeoutError{Key: r.key, Server: s.config.URI}
	case silent:
		err = &SilentError{Key: r.key, Server: s.config.URI}
	default:
		err = &NotFoundError{Key: r.key, Server: s.config.URI, Expired: true}
	}
	if r.err != nil && r.err.Error() == err.Error() {
		r.stream = s.stream
	} else {
		s.lose(r, err, now)
	}
	s.notify(r)
}

func (s *server) lose(r *serverResource, err error, now time.Time) {
	s.client.remember(r, resource.Item{})
	r.stream, r.version, r.updated = s.stream, "", now
	r.rejection, r.reason, r.err = nil, nil, err
}

// confirm takes what a server sent on earlier streams, and had no reason to send
// again on this one, for confirmed.
func (s *server) confirm(st *stream) {
	if s.stream != st {
		return
	}
	for _, resources := range s.resources {
		for _, r := range resources {
			if r.good() && r.stream != st {
				r.stream = st
				s.notify(r)
			}
		}
	}
}
