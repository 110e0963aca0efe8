package client

import (
	"context"
	"log/slog"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// channelEnv is what the channels of a client share.
type channelEnv struct {
	// fixed
	node   *corev3.Node
	logger *slog.Logger
	events func(Event)
	cache  *resourceCache
	// after has the owner call a function when the time has passed.
	after func(time.Duration, func())

	// owner only
	counts map[UpdateCount]uint64
}

// channelUser is an authority that uses a channel. The owner calls it.
type channelUser interface {
	// connectedChanged handles a change of xdsChannel.connected.
	connectedChanged()
	// channelAnswered handles the first response on a stream.
	channelAnswered()
	// channelFailed handles the end of a stream, or of an attempt, without a response.
	channelFailed()
}

// xdsChannel follows one management server, with at most one stream at a time, for all
// authorities that use the server. It handles the events of a transport.
type xdsChannel struct {
	// fixed
	*channelEnv
	server     *bootstrap.Server
	connection *connection
	ctx        context.Context // ends when the channel is released
	cancel     context.CancelFunc

	// owner only
	users         map[channelUser]struct{}
	subscriptions map[resource.Type]*subscriptions
	resources     map[resource.Type]map[string]*resourceState // of subscriptions, by name
	stream        *adsStream                                  // nil if there is none
	// failed is why the last attempt ended before a response; nil at first, and after a
	// response.
	failed error
}

func newXDSChannel(ctx context.Context, env *channelEnv, server *bootstrap.Server, c *connection) *xdsChannel {
	ctx, cancel := context.WithCancel(ctx)
	return &xdsChannel{
		channelEnv:    env,
		server:        server,
		connection:    c,
		ctx:           ctx,
		cancel:        cancel,
		users:         map[channelUser]struct{}{},
		subscriptions: map[resource.Type]*subscriptions{},
		resources:     map[resource.Type]map[string]*resourceState{},
	}
}

func (ch *xdsChannel) close() {
	ch.stream = nil
	ch.connection.set(false)
	ch.cancel()
}

func (ch *xdsChannel) watchExpiry() time.Duration {
	if ch.server.ResourceTimerIsTransientError {
		return slowWatchExpiry
	}
	return watchExpiry
}

// connected reports whether the server responded on the current stream.
func (ch *xdsChannel) connected() bool { return ch.stream != nil && ch.stream.answered.Load() }

func (ch *xdsChannel) subscribe(k resource.Key) {
	t := ch.subscriptions[k.Type]
	if t == nil {
		t = newSubscriptions(k.Type)
		ch.subscriptions[k.Type] = t
	}
	t.subscribe(k.Name)
}

// sendRequest sends the next request, if one is needed and the last one was sent.
func (ch *xdsChannel) sendRequest() {
	st := ch.stream
	if st == nil || st.sending {
		return
	}
	now := time.Now()
	for _, kind := range resourceTypes {
		t := ch.subscriptions[kind]
		if t == nil || !t.requestDue(now) {
			continue
		}
		var node *corev3.Node
		if !st.nodeSent {
			st.nodeSent = true
			node = ch.node
		}
		message, fresh := t.nextRequest(node, now)
		st.sending = true
		st.requests <- request{message: message, subscriptions: t, fresh: fresh}
		return
	}
}

// streamOpened requests everything on a new stream. It ignores a stream that opens after
// the release: no event would end it.
func (ch *xdsChannel) streamOpened(st *adsStream) {
	if ch.ctx.Err() != nil {
		return
	}
	ch.stream = st
	for _, t := range ch.subscriptions {
		t.newStream()
	}
	ch.after(ch.watchExpiry(), func() { ch.quietTimeout(st) })
}

// requestSent starts the timeout of the resources that a request has for the first time.
func (ch *xdsChannel) requestSent(st *adsStream, r request) {
	if ch.stream != st {
		return
	}
	st.sending = false
	t := r.subscriptions
	fresh := slices.DeleteFunc(r.fresh, func(sub *subscription) bool { return t.names[sub.name] != sub || sub.stage != notRequested })
	if len(fresh) == 0 {
		return
	}
	st.awaitsResources = true
	for _, sub := range fresh {
		sub.stage = requested
	}
	ch.startTimeout(st, t, fresh)
}

func (ch *xdsChannel) startTimeout(st *adsStream, t *subscriptions, subs []*subscription) {
	ch.after(ch.watchExpiry(), func() { ch.timeout(st, t, subs) })
}

func (ch *xdsChannel) timeout(st *adsStream, t *subscriptions, subs []*subscription) {
	if ch.stream != st {
		return
	}
	if st.processing.Load() || t.unread {
		// The resources may be in a response that waits for lbd.
		ch.startTimeout(st, t, subs)
		return
	}
	now := time.Now()
	for _, sub := range subs {
		if t.names[sub.name] != sub || sub.stage != requested {
			continue
		}
		silent := !st.answered.Load()
		sub.expire(silent)
		ch.resourceTimeout(ch.resources[t.kind][sub.name], silent, now)
	}
}

// quietTimeout treats a server as connected that has not responded, if everything that is
// requested was sent on earlier streams.
func (ch *xdsChannel) quietTimeout(st *adsStream) {
	if ch.stream != st || st.answered.Load() || st.awaitsResources {
		return
	}
	for _, t := range ch.subscriptions {
		if t.waiting() {
			return
		}
	}
	ch.markAnswered(st)
	ch.confirmResources(st)
}

// markAnswered records the first response on a stream. What the server sent on earlier
// streams, and does not send again in time, is then confirmed.
func (ch *xdsChannel) markAnswered(st *adsStream) {
	st.answered.Store(true)
	ch.failed = nil
	ch.updateConnected()
	ch.events(Connected{Server: ch.server.URI})
	ch.after(ch.watchExpiry(), func() { ch.confirmResources(st) })
	ch.restartSilent(st)
	for u := range ch.users {
		u.channelAnswered()
	}
}

// restartSilent starts the timeout again for what the server did not send while it was silent.
func (ch *xdsChannel) restartSilent(st *adsStream) {
	for kind, t := range ch.subscriptions {
		for _, r := range ch.resources[kind] {
			if r.err != nil && r.err.Kind == ErrorSilent {
				r.err = nil
			}
		}
		if subs := t.restartSilent(); len(subs) > 0 {
			ch.startTimeout(st, t, subs)
		}
	}
}

// responseReceived handles a response. As in gRPC, a response of a type that was not
// requested is neither acknowledged nor rejected.
func (ch *xdsChannel) responseReceived(st *adsStream, r *response) {
	if ch.stream != st {
		return
	}
	if t := ch.subscriptions[r.kind]; t != nil {
		ch.handleResponse(st, t, r)
	} else if !st.warned {
		st.warned = true
		ch.logger.Warn("management server sent resources of a type that was not requested", "server", ch.server.URI, "type_url", r.typeURL)
	}
	if !st.answered.Load() {
		ch.markAnswered(st)
	}
}

func (ch *xdsChannel) handleResponse(st *adsStream, t *subscriptions, r *response) {
	now := time.Now()
	if !st.answered.Load() {
		ch.restartSilent(st)
	}
	held := t.holdUntil
	t.handleResponse(r)
	if t.holdUntil != held && t.holdUntil.After(now) {
		ch.after(t.holdUntil.Sub(now), func() {}) // the owner then sends the request
	}
	if r.unread {
		return
	}
	for range r.unnamed {
		ch.count(r.kind, UpdateInvalid)
	}
	ch.updateResources(r, now)
}

func (ch *xdsChannel) count(t resource.Type, result UpdateResult) {
	ch.counts[UpdateCount{Server: ch.server.URI, Type: t, Result: result}]++
}

// streamEnded handles the end of a stream, or of an attempt to open one. If the server
// had responded, it is not a failure: a server may close a stream at any time (gRFC A57).
func (ch *xdsChannel) streamEnded(answered bool, err error) {
	if ch.ctx.Err() != nil {
		return
	}
	ch.stream = nil
	ch.updateConnected()
	ch.connection.fail(err, time.Now())
	ch.events(Disconnected{Server: ch.server.URI, Answered: answered, Err: err})
	if answered {
		return
	}
	ch.failed = err
	for u := range ch.users {
		u.channelFailed()
	}
}

// updateConnected precedes events and updates: their receivers may read the result.
func (ch *xdsChannel) updateConnected() {
	ch.connection.set(ch.connected())
	for u := range ch.users {
		u.connectedChanged()
	}
}
