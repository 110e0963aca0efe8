// Package roundrobin is gRPC's round_robin: READY endpoints take turns.
package roundrobin

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
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
		b := &roundRobin{conn: conn, reported: connectivity.Shutdown}
		b.endpoints = policy.NewEndpointSet(conn, true, b.changed)
		return b
	})
}

// roundRobin belongs to the owner.
type roundRobin struct {
	conn      *policy.Conn
	endpoints *policy.EndpointSet[nothing]
	lastErr   error

	reported connectivity.State
	stale    bool // the picker no longer says what is
	pending  bool
	closed   bool
}

// nothing is what round_robin keeps of an endpoint for itself.
type nothing struct{}

func (b *roundRobin) UpdateClientConnState(s balancer.ClientConnState) error {
	changed, err := b.endpoints.Update(s.ResolverState.Endpoints)
	b.stale = b.stale || changed
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

// changed takes an endpoint's new state.
func (b *roundRobin) changed(m *policy.Member[nothing], from, _ connectivity.State) {
	if m.State == connectivity.TransientFailure {
		b.lastErr = m.LastErr
		b.stale = b.stale || b.reported == connectivity.TransientFailure
	}
	b.stale = b.stale || (from == connectivity.Ready) != (m.State == connectivity.Ready)
	b.conn.Mark(b, &b.pending)
}

// Report sends the state up where it says something new.
func (b *roundRobin) Report() {
	if b.closed {
		return
	}
	state := b.endpoints.Counted.Best()
	if state == b.reported && !b.stale {
		return
	}
	b.reported, b.stale = state, false
	b.conn.UpdateState(balancer.State{ConnectivityState: state, Picker: b.picker(state)})
}

func (b *roundRobin) picker(state connectivity.State) balancer.Picker {
	switch state {
	case connectivity.Ready:
		return newPicker(b.endpoints, b.conn.Draw())
	case connectivity.TransientFailure:
		return &policy.ErrPicker{Err: b.lastErr}
	default:
		return policy.QueuePicker
	}
}

// ResolverError fails a policy that has no endpoints; with endpoints they go on
// being used.
func (b *roundRobin) ResolverError(err error) {
	if len(b.endpoints.Order) == 0 {
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
	b.endpoints.Close()
}

// Describe describes every endpoint, in the config's order.
func (b *roundRobin) Describe() policy.Node {
	n := policy.Node{Policy: policy.RoundRobin, State: b.reported, Endpoints: b.endpoints.Describe(), Shares: true}
	for i := range n.Endpoints {
		if n.Endpoints[i].InRotation {
			n.Endpoints[i].Share = 1 / float64(b.endpoints.Census.Ready)
		}
	}
	if b.reported == connectivity.TransientFailure {
		n.Err = b.lastErr
	}
	return n
}

// Summarize counts the endpoints by state.
func (b *roundRobin) Summarize() policy.Summary {
	return policy.Summary{State: b.reported, Priority: -1, Census: b.endpoints.Census}
}
