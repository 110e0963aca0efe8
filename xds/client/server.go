package client

import (
	"context"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// watchExpiry is the time that a server has to send a resource, from when it
	// was asked for it on a stream, as all xDS clients give.
	watchExpiry = 15 * time.Second
	// slowWatchExpiry is that of a server with resource_timer_is_transient_error.
	slowWatchExpiry = 30 * time.Second
	// refusalPace is the least time between two NACKs of the same version. There
	// are servers that answer each NACK with the same again, at once.
	refusalPace = time.Second
)

// kinds are those that are asked for, in the order in which they are when several
// are due: what is needed by what follows.
var kinds = [...]resource.Type{resource.TypeCluster, resource.TypeAssignment, resource.TypeListener, resource.TypeRoutes}

// server is a management server in use: a connection, and one stream at a time. Its
// runner has the connection; the rest is the owner's.
type server struct {
	// fixed
	client *Client
	config bootstrap.Server
	ctx    context.Context    // the runner's
	stop   context.CancelFunc // ends the runner
	// after calls a function as the owner when a time is over.
	after func(time.Duration, func())

	// owner only
	authorities   map[*authority]struct{} // those that use it
	subscriptions map[resource.Type]*subscriptions
	// resources are those of the subscriptions, by type and name.
	resources map[resource.Type]map[string]*serverResource
	stream    *stream // nil while there is none
	// failed is why the last attempt ended before the server answered; nil since
	// it did, and at first.
	failed error
}

// serverFor returns the server of a configuration, and starts it where it is not in
// use.
func (c *Client) serverFor(config bootstrap.Server) *server {
	if s := c.servers[config.Key()]; s != nil {
		return s
	}
	ctx, stop := context.WithCancel(c.ctx)
	s := &server{
		client:        c,
		config:        config,
		ctx:           ctx,
		stop:          stop,
		after:         c.after,
		authorities:   map[*authority]struct{}{},
		subscriptions: map[resource.Type]*subscriptions{},
		resources:     map[resource.Type]map[string]*serverResource{},
	}
	c.servers[config.Key()] = s
	c.start(s)
	return s
}

// letGo ends the connection to a server that no authority uses.
func (c *Client) letGo(s *server) {
	delete(c.servers, s.config.Key())
	s.stream = nil
	s.contact().set(false)
	s.stop()
}

// watchExpiry returns the time that the server has to send a resource.
func (s *server) watchExpiry() time.Duration {
	if s.config.ResourceTimerIsTransientError {
		return slowWatchExpiry
	}
	return watchExpiry
}

// speaks reports whether the server answered on the stream that there is.
func (s *server) speaks() bool { return s.stream != nil && s.stream.answered.Load() }

// subscribe adds a resource to those that the server is asked for.
func (s *server) subscribe(k resource.Key) {
	t := s.subscriptions[k.Type]
	if t == nil {
		t = newSubscriptions(k.Type)
		s.subscriptions[k.Type] = t
	}
	t.subscribe(k.Name)
}

func (s *server) unsubscribe(k resource.Key) {
	if t := s.subscriptions[k.Type]; t != nil {
		t.unsubscribe(k.Name)
	}
}

// flush hands the sender the next request, if it waits for one and one is due.
func (s *server) flush() {
	st := s.stream
	if st == nil || st.sending {
		return
	}
	now := time.Now()
	for _, kind := range kinds {
		t := s.subscriptions[kind]
		if t == nil || !t.requestDue(now) {
			continue
		}
		var node *corev3.Node
		if !st.greeted {
			st.greeted = true
			node = s.client.options.Bootstrap.Node
		}
		r, fresh := t.nextRequest(node, now)
		st.sending = true
		st.requests <- sending{request: r, subscriptions: t, fresh: fresh}
		return
	}
}

// opened takes a new stream: everything is requested again. A server that was released
// while its stream opened does not have it: nothing would end it.
func (s *server) opened(st *stream) {
	if s.ctx.Err() != nil {
		return
	}
	s.stream = st
	for _, t := range s.subscriptions {
		t.newStream()
	}
	s.after(s.watchExpiry(), func() { s.silent(st) })
}

// sent records that a request was sent. The server's time for what is fresh in it
// starts now.
func (s *server) sent(st *stream, request sending) {
	if s.stream != st {
		return
	}
	st.sending = false
	t, fresh := request.subscriptions, request.fresh
	fresh = slices.DeleteFunc(fresh, func(sub *subscription) bool { return t.names[sub.name] != sub || sub.stage != unasked })
	if len(fresh) == 0 {
		return
	}
	st.owes = true
	for _, sub := range fresh {
		sub.stage = asked
	}
	s.expireLater(st, t, fresh)
}

// expireLater gives the server its time to send what was asked for together.
func (s *server) expireLater(st *stream, t *subscriptions, together []*subscription) {
	s.after(s.watchExpiry(), func() { s.expireAll(st, t, together) })
}

// expireAll takes notice that the server's time to send resources is over.
func (s *server) expireAll(st *stream, t *subscriptions, together []*subscription) {
	if s.stream != st {
		return
	}
	if st.taking.Load() {
		// It may have been sent, and wait behind what is being decoded or told:
		// that is not the server's fault.
		s.expireLater(st, t, together)
		return
	}
	now := time.Now()
	for _, sub := range together {
		if t.names[sub.name] != sub || sub.stage != asked {
			continue
		}
		silent := !st.answered.Load()
		sub.expire(silent)
		s.expire(s.resources[t.kind][sub.name], silent, now)
	}
}

// silent takes a server that has kept a stream for so long, and was asked on it for
// nothing but what it sent on others, for one that answered.
func (s *server) silent(st *stream) {
	if s.stream != st || st.answered.Load() || st.owes {
		return
	}
	for _, t := range s.subscriptions {
		if t.waiting() {
			return
		}
	}
	s.answer(st)
	s.confirm(st)
}

// answer is the first sign of life on a stream. What the server sent on earlier streams
// and does not send again in its time counts as confirmed.
func (s *server) answer(st *stream) {
	st.answered.Store(true)
	s.failed = nil
	s.refresh()
	s.client.tell(Connected{Server: s.config.URI})
	s.after(s.watchExpiry(), func() { s.confirm(st) })
	s.endSilence(st)
	for a := range s.authorities {
		a.reach()
	}
}

// endSilence gives a server that speaks its time for what it did not send while it
// was silent.
func (s *server) endSilence(st *stream) {
	for kind, t := range s.subscriptions {
		for _, r := range s.resources[kind] {
			if r.silent() {
				r.err = nil
			}
		}
		if again := t.restartUnheard(); len(again) > 0 {
			s.expireLater(st, t, again)
		}
	}
}

// receive takes a response. The receipt is the runner's, which waits for it.
func (s *server) receive(st *stream, r *response, receipt *receipt) {
	defer receipt.release()
	if s.stream != st {
		return
	}
	t := s.subscriptions[r.kind]
	if t == nil {
		// As in gRPC, what was not asked for is neither accepted nor refused.
		if !st.warned {
			st.warned = true
			s.client.logger.Warn("a management server sent resources of a type that it was not asked for", "server", s.config.URI, "type_url", r.typeURL)
		}
		if !st.answered.Load() {
			s.answer(st)
		}
		return
	}
	now := time.Now()
	if !st.answered.Load() {
		s.endSilence(st)
	}
	held := t.holdUntil
	t.handleResponse(r)
	if t.holdUntil != held && t.holdUntil.After(now) {
		s.after(t.holdUntil.Sub(now), func() {}) // the owner flushes after it
	}
	for range r.nameless {
		s.client.count(s, r.kind, UpdateInvalid)
	}
	s.client.deliver(nil)
	s.apply(r, now)
	if !st.answered.Load() {
		s.answer(st)
	}
	s.client.deliver(receipt)
}

// ended is the end of a stream, or of an attempt to open one. Who is told of it
// depends on whether the server had answered: a server may close a stream to
// spread its load, or because it is old (gRFC A57).
func (s *server) ended(answered bool, err error) {
	if s.client.servers[s.config.Key()] != s {
		return
	}
	now := time.Now()
	s.stream = nil
	s.refresh()
	s.contact().fail(err, now)
	s.client.tell(Disconnected{Server: s.config.URI, Answered: answered, Err: err})
	if answered {
		return
	}
	s.failed = err
	for a := range s.authorities {
		a.fail()
	}
}

// refresh updates what other goroutines may read of whether the server is connected.
// It comes before events and updates, whose receivers may ask.
func (s *server) refresh() {
	s.contact().set(s.speaks())
	for a := range s.authorities {
		a.refresh()
	}
}

func (s *server) contact() *contact { return s.client.contacts[s.config.Key()] }
