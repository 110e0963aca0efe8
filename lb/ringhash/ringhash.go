// Package ringhash is gRPC's ring_hash_experimental: requests with one hash go to
// one endpoint, and few of them go elsewhere when endpoints come and go (gRFC
// A42, A61, A76).
package ringhash

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errNoEndpoints = errors.New("no endpoint that picks may reach")

// Builder builds ring_hash policies, whose config is a [policy.RingHashConfig].
// They take their endpoints from the resolver state, and weigh them by
// [policy.WeightsOf] it.
type Builder struct{}

// Name returns "ring_hash_experimental".
func (Builder) Name() string { return policy.RingHash }

// Build returns a ring_hash policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		b := &ringHash{conn: conn, reported: connectivity.Shutdown}
		b.endpoints = policy.NewEndpointSet(conn, false, b.changed)
		return b
	})
}

// ringHash connects an endpoint when a pick falls on it, and when others have
// failed. All of it belongs to the owner, but what is said at member.
type ringHash struct {
	conn      *policy.Conn
	endpoints *policy.EndpointSet[own]
	byKey     []*member // the order in which endpoints are tried without a pick

	config policy.RingHashConfig
	spots  []spot // what ring is made of
	ring   ring

	lastErr  error
	reported connectivity.State
	stale    bool // the picker no longer says what is
	pending  bool
	closed   bool
}

type member = policy.Member[own]

// own is what ring_hash keeps of an endpoint.
type own struct {
	// asked is set by a pick that fell on the endpoint while it was IDLE, and
	// cleared by the owner, which connects it.
	asked atomic.Bool
}

func (b *ringHash) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(policy.RingHashConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.RingHash, s.BalancerConfig)
	}
	changed, err := b.endpoints.Update(s.ResolverState.Endpoints)
	b.stale = b.stale || changed
	b.place(cfg, policy.WeightsOf(s.ResolverState))
	b.conn.Mark(b, &b.pending)
	switch {
	case err != nil:
		return err
	case len(b.endpoints.Order) == 0:
		b.lastErr = errNoEndpoints
		return balancer.ErrBadResolverState
	default:
		return nil
	}
}

// place makes the ring anew, unless it is the same.
func (b *ringHash) place(cfg policy.RingHashConfig, weights policy.Weights) {
	order := b.endpoints.Order
	spots := make([]spot, len(order))
	for i, m := range order {
		spots[i] = spot{key: key(m.Value), weight: weights.Of(m.Value), seat: i}
	}
	b.byKey = slices.Clone(order)
	slices.SortStableFunc(b.byKey, func(a, c *member) int { return cmp.Compare(key(a.Value), key(c.Value)) })
	if b.ring != nil && b.config == cfg && slices.Equal(b.spots, spots) {
		return
	}
	b.config, b.spots, b.stale = cfg, spots, true
	b.ring = newRing(spots, cfg.MinSize, cfg.MaxSize)
}

// key is what places an endpoint on the ring (gRFC A76).
func key(e *resource.Endpoint) string {
	if e.HashKey != "" {
		return e.HashKey
	}
	return e.Addresses[0]
}

// changed takes an endpoint's new state. While one that has failed tries again
// it still counts as failed, and picks see no difference.
func (b *ringHash) changed(m *member, _, counted connectivity.State) {
	if m.State == connectivity.TransientFailure {
		b.lastErr, b.stale = m.LastErr, true
	}
	b.stale = b.stale || m.Counted != counted
	b.conn.Mark(b, &b.pending)
}

// connect connects an endpoint that a pick fell on.
func (b *ringHash) connect(m *member) {
	m.Own.asked.Store(false)
	if b.endpoints.Connect(m) {
		b.stale = true
		b.conn.Mark(b, &b.pending)
	}
}

// Report sends the state up, where picks see a change.
func (b *ringHash) Report() {
	if b.closed {
		return
	}
	if b.tryAnother() {
		b.conn.Mark(b, &b.pending) // what it answers at once goes up with the rest
		return
	}
	state := b.state()
	if state == b.reported && !b.stale {
		return
	}
	b.reported, b.stale = state, false
	b.conn.UpdateState(balancer.State{ConnectivityState: state, Picker: b.picker()})
}

// state aggregates the endpoints' states. Two that have failed are a failure,
// so that the next priority has its turn; one is not while there are others, of
// which tryAnother has one CONNECTING (gRFC A42).
func (b *ringHash) state() connectivity.State {
	c := b.endpoints.Counted
	if c.Ready == 0 && c.TransientFailure > 1 {
		return connectivity.TransientFailure
	}
	return c.Best()
}

// tryAnother connects an endpoint where others have failed and none is READY or
// CONNECTING. Behind priority no pick may come that would do so.
func (b *ringHash) tryAnother() bool {
	c := b.endpoints.Counted
	if c.TransientFailure == 0 || c.Ready > 0 || c.Connecting > 0 {
		return false
	}
	return slices.ContainsFunc(b.byKey, b.endpoints.Connect)
}

func (b *ringHash) picker() balancer.Picker {
	if len(b.endpoints.Order) == 0 {
		return &policy.ErrPicker{Err: b.lastErr}
	}
	p := &picker{
		ring:       b.ring,
		seats:      make([]seat, len(b.endpoints.Order)),
		connecting: b.endpoints.Counted.Connecting > 0,
		draw:       b.conn.Draw(),
		policy:     b,
	}
	for i, m := range b.endpoints.Order {
		p.seats[i] = seat{member: m, subConn: m.SubConn, endpoint: m.Value, state: m.Counted, err: m.LastErr}
	}
	if b.reported == connectivity.TransientFailure {
		p.failure = b.lastErr
	}
	return p
}

// ResolverError fails a policy that has no endpoints; with endpoints they go on
// being used.
func (b *ringHash) ResolverError(err error) {
	if len(b.endpoints.Order) == 0 {
		b.lastErr, b.stale = err, true
		b.conn.Mark(b, &b.pending)
	}
}

// UpdateSubConnState is not called: the SubConns have listeners.
func (b *ringHash) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle does nothing: picks connect, and failures do.
func (b *ringHash) ExitIdle() {}

func (b *ringHash) Close() {
	b.closed = true
	b.endpoints.Close()
}

// Describe describes every endpoint, in the config's order.
func (b *ringHash) Describe() policy.Node {
	n := policy.Node{Policy: policy.RingHash, State: b.reported, Endpoints: b.endpoints.Describe(), Shares: true}
	for i, share := range b.shares() {
		n.Endpoints[i].Share = share
	}
	if b.reported == connectivity.TransientFailure {
		n.Err = b.lastErr
	}
	return n
}

// shares are the parts of all hashes that lead to the endpoints that have not
// failed: what falls on one that has goes on to the next.
func (b *ringHash) shares() []float64 {
	shares := make([]float64, len(b.endpoints.Order))
	if b.endpoints.Counted.TransientFailure == len(shares) {
		return shares
	}
	place := func(e entry) float64 { return float64(e.hash) / (1 << 64) }
	n := len(b.ring)
	arc := 1 - place(b.ring[n-1]) + place(b.ring[0])
	for i := range 2 * n { // the second time round ends the arc that the first left open
		e := b.ring[i%n]
		if 0 < i && i < n {
			arc += place(e) - place(b.ring[i-1])
		}
		if b.endpoints.Order[e.seat].Counted != connectivity.TransientFailure {
			shares[e.seat] += arc
			arc = 0
		}
	}
	return shares
}

// Summarize counts the endpoints by state.
func (b *ringHash) Summarize() policy.Summary {
	return policy.Summary{State: b.reported, Priority: -1, Census: b.endpoints.Census}
}
