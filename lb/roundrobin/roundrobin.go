// Package roundrobin is gRPC's round_robin: READY endpoints take turns.
package roundrobin

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errNoEndpoints = errors.New("no endpoint that picks may reach")

// Builder builds round_robin policies. They take their endpoints from the
// resolver state and need no config; endpoint weights mean nothing to them.
type Builder struct{}

// Name returns "round_robin".
func (Builder) Name() string { return policy.RoundRobin }

// Build returns a round_robin policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		return &roundRobin{conn: conn, endpoints: make(map[string]*endpoint), reported: connectivity.Shutdown}
	})
}

// roundRobin keeps one SubConn for each endpoint. All of it belongs to the
// owner.
type roundRobin struct {
	conn *policy.Conn

	// endpoints is keyed by the endpoint's first address; order is the
	// config's.
	endpoints map[string]*endpoint
	order     []*endpoint

	states  balancer.ConnectivityStateEvaluator
	census  policy.Census
	lastErr error

	reported connectivity.State
	stale    bool // the picker no longer says what is
	pending  bool
	closed   bool
}

// endpoint is one endpoint and its SubConn.
type endpoint struct {
	value   *resource.Endpoint
	subConn balancer.SubConn
	// state is the SubConn's own; counted is what the aggregate takes it for:
	// TRANSIENT_FAILURE lasts until READY.
	state, counted connectivity.State
	lastErr        error
	kept           bool // in the config being applied
}

func (b *roundRobin) UpdateClientConnState(s balancer.ClientConnState) error {
	for _, e := range b.endpoints {
		e.kept = false
	}
	order := make([]*endpoint, 0, len(s.ResolverState.Endpoints))
	var fresh []*endpoint
	var errs []error
	for _, re := range s.ResolverState.Endpoints {
		if len(re.Addresses) == 0 {
			continue
		}
		value := policy.EndpointOf(re)
		e := b.endpoints[value.Addresses[0]]
		switch {
		case e != nil && e.kept:
			continue // twice in the config: the first counts
		case e != nil && b.keep(e, re.Addresses, value):
		default:
			var err error
			if e, err = b.add(re.Addresses, value); err != nil {
				errs = append(errs, err)
				continue
			}
			fresh = append(fresh, e)
		}
		e.kept = true
		order = append(order, e)
	}
	for key, e := range b.endpoints {
		if !e.kept {
			b.remove(key, e)
		}
	}
	b.stale = b.stale || !slices.Equal(b.order, order)
	b.order = order
	b.connect(fresh)
	b.conn.Mark(b, &b.pending)
	switch {
	case len(errs) > 0:
		return errs[0]
	case len(order) == 0:
		b.lastErr = errNoEndpoints
		return balancer.ErrBadResolverState
	default:
		return nil
	}
}

// connect begins at a random place: where many clients get one list, its head
// is not to be hit by all of them at once.
func (b *roundRobin) connect(fresh []*endpoint) {
	if len(fresh) == 0 {
		return
	}
	start, _ := bits.Mul64(b.conn.Draw()(), uint64(len(fresh)))
	for i := range fresh {
		fresh[(int(start)+i)%len(fresh)].subConn.Connect()
	}
}

// keep gives e its value in the new config, and reports whether e can go on with
// it.
func (b *roundRobin) keep(e *endpoint, addrs []resolver.Address, value *resource.Endpoint) bool {
	if e.value == value {
		return true
	}
	if !slices.Equal(e.value.Addresses, value.Addresses) {
		b.remove(value.Addresses[0], e)
		return false
	}
	if e.value.Hostname != value.Hostname {
		e.subConn.UpdateAddresses(addrs) // they bear the name that TLS goes by
	}
	e.value = value
	b.stale = b.stale || e.state == connectivity.Ready // pickers hold the value
	return true
}

// add makes an endpoint, which is not connected yet.
func (b *roundRobin) add(addrs []resolver.Address, value *resource.Endpoint) (*endpoint, error) {
	e := &endpoint{value: value, state: connectivity.Idle, counted: connectivity.Connecting}
	sc, err := b.conn.NewSubConn(addrs, balancer.NewSubConnOptions{
		StateListener: func(s balancer.SubConnState) { b.subConnState(e, s) },
	})
	if err != nil {
		return nil, fmt.Errorf("new SubConn for %s: %w", value.Addresses[0], err)
	}
	e.subConn = sc
	b.endpoints[value.Addresses[0]] = e
	b.states.RecordTransition(connectivity.Shutdown, e.counted)
	b.count(e.state, 1)
	return e, nil
}

func (b *roundRobin) remove(key string, e *endpoint) {
	delete(b.endpoints, key)
	b.states.RecordTransition(e.counted, connectivity.Shutdown)
	b.count(e.state, -1)
	if e.state == connectivity.Ready {
		b.stale = true
	}
	e.state = connectivity.Shutdown
	e.subConn.Shutdown()
}

func (b *roundRobin) subConnState(e *endpoint, s balancer.SubConnState) {
	if e.state == connectivity.Shutdown || s.ConnectivityState == connectivity.Shutdown {
		return
	}
	was := e.state
	e.state = s.ConnectivityState
	b.count(was, -1)
	b.count(e.state, 1)

	switch e.state {
	case connectivity.Ready:
		e.lastErr = nil
	case connectivity.TransientFailure:
		e.lastErr, b.lastErr = s.ConnectionError, s.ConnectionError
		b.stale = b.stale || b.reported == connectivity.TransientFailure
		b.conn.ResolveNow(resolver.ResolveNowOptions{})
	case connectivity.Idle:
		if s.ConnectionError != nil {
			e.lastErr = s.ConnectionError
		}
		e.subConn.Connect()
	}
	b.stale = b.stale || (was == connectivity.Ready) != (e.state == connectivity.Ready)

	if e.counted != connectivity.TransientFailure || e.state == connectivity.Ready {
		counted := e.state
		if counted == connectivity.Idle {
			counted = connectivity.Connecting // it connects at once
		}
		b.states.RecordTransition(e.counted, counted)
		e.counted = counted
	}
	b.conn.Mark(b, &b.pending)
}

// Report sends the state up where it says something new.
func (b *roundRobin) Report() {
	if b.closed {
		return
	}
	state := b.states.CurrentState()
	if state == b.reported && !b.stale {
		return
	}
	b.reported, b.stale = state, false
	b.conn.UpdateState(balancer.State{ConnectivityState: state, Picker: b.picker(state)})
}

func (b *roundRobin) picker(state connectivity.State) balancer.Picker {
	switch state {
	case connectivity.Ready:
		return newPicker(b.order, b.census.Ready, b.conn.Draw())
	case connectivity.TransientFailure:
		return &policy.ErrPicker{Err: b.lastErr}
	default:
		return policy.QueuePicker
	}
}

func (b *roundRobin) count(s connectivity.State, n int) {
	switch s {
	case connectivity.Ready:
		b.census.Ready += n
	case connectivity.Connecting:
		b.census.Connecting += n
	case connectivity.Idle:
		b.census.Idle += n
	case connectivity.TransientFailure:
		b.census.TransientFailure += n
	}
}

// ResolverError fails a policy that has no endpoints; with endpoints they go on
// being used.
func (b *roundRobin) ResolverError(err error) {
	if len(b.order) == 0 {
		b.lastErr, b.stale = err, true
		b.conn.Mark(b, &b.pending)
	}
}

// UpdateSubConnState is not called: the SubConns have listeners.
func (b *roundRobin) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle does nothing: no endpoint stays IDLE.
func (b *roundRobin) ExitIdle() {}

func (b *roundRobin) Close() {
	b.closed = true
	for key, e := range b.endpoints {
		b.remove(key, e)
	}
}

// Describe describes every endpoint, in the config's order.
func (b *roundRobin) Describe() policy.Node {
	n := policy.Node{Policy: policy.RoundRobin, State: b.reported, Shares: true}
	if b.reported == connectivity.TransientFailure {
		n.Err = b.lastErr
	}
	n.Endpoints = make([]policy.EndpointNode, len(b.order))
	for i, e := range b.order {
		n.Endpoints[i] = policy.EndpointNode{
			Endpoint:   e.value,
			State:      e.state,
			InRotation: e.state == connectivity.Ready,
			LastErr:    e.lastErr,
		}
		if e.state == connectivity.Ready {
			n.Endpoints[i].Share = 1 / float64(b.census.Ready)
		}
		if sc, ok := e.subConn.(policy.SubConn); ok {
			n.Endpoints[i].Address, _ = sc.Ready()
		}
	}
	return n
}

// Summarize counts the endpoints by state.
func (b *roundRobin) Summarize() policy.Summary {
	return policy.Summary{State: b.reported, Priority: -1, Census: b.census}
}
