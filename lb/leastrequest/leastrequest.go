// Package leastrequest is gRPC's least_request_experimental (gRFC A48): of a few
// READY endpoints drawn at random, the one with the fewest requests in flight.
package leastrequest

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

var errNoEndpoints = errors.New("no endpoint that picks may reach")

// Builder builds least_request policies, whose config is a
// [policy.LeastRequestConfig]. They take their endpoints from the resolver
// state; endpoint weights mean nothing to them.
type Builder struct{}

// Name returns "least_request_experimental".
func (Builder) Name() string { return policy.LeastRequest }

// Build returns a least_request policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		b := &leastRequest{conn: conn, reported: connectivity.Shutdown}
		b.endpoints = policy.NewEndpointSet(conn, true, b.changed)
		return b
	})
}

// leastRequest belongs to the owner, all of it but what its endpoints have in
// flight.
type leastRequest struct {
	conn      *policy.Conn
	config    policy.LeastRequestConfig
	endpoints *policy.EndpointSet[inFlight]
	lastErr   error

	reported connectivity.State
	stale    bool // the picker no longer says what is
	pending  bool
	closed   bool
}

func (b *leastRequest) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(policy.LeastRequestConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.LeastRequest, s.BalancerConfig)
	}
	changed, err := b.endpoints.Update(s.ResolverState.Endpoints)
	b.stale = b.stale || changed || b.config != cfg
	b.config = cfg
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
func (b *leastRequest) changed(m *policy.Member[inFlight], from, _ connectivity.State) {
	if m.State == connectivity.TransientFailure {
		b.lastErr = m.LastErr
		b.stale = b.stale || b.reported == connectivity.TransientFailure
	}
	b.stale = b.stale || (from == connectivity.Ready) != (m.State == connectivity.Ready)
	b.conn.Mark(b, &b.pending)
}

// Report sends the state up where it says something new.
func (b *leastRequest) Report() {
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

func (b *leastRequest) picker(state connectivity.State) balancer.Picker {
	switch state {
	case connectivity.Ready:
		return newPicker(b.endpoints, b.config.ChoiceCount, b.conn.Draw())
	case connectivity.TransientFailure:
		return &policy.ErrPicker{Err: b.lastErr}
	default:
		return policy.QueuePicker
	}
}

// ResolverError fails a policy that has no endpoints; with endpoints they go on
// being used.
func (b *leastRequest) ResolverError(err error) {
	if len(b.endpoints.Order) == 0 {
		b.lastErr, b.stale = err, true
		b.conn.Mark(b, &b.pending)
	}
}

// UpdateSubConnState is not called: the SubConns have listeners.
func (b *leastRequest) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle does nothing: no endpoint stays IDLE.
func (b *leastRequest) ExitIdle() {}

func (b *leastRequest) Close() {
	b.closed = true
	b.endpoints.Close()
}

// Describe describes every endpoint, in the config's order.
func (b *leastRequest) Describe() policy.Node {
	n := policy.Node{Policy: policy.LeastRequest, State: b.reported, Endpoints: b.endpoints.Describe(), Shares: true}
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
func (b *leastRequest) Summarize() policy.Summary {
	return policy.Summary{State: b.reported, Priority: -1, Census: b.endpoints.Census}
}
