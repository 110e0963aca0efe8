// Package weightedroundrobin is gRPC's weighted_round_robin (gRFC A58): READY
// endpoints take turns by the weights that come of the loads that they report.
//
// While fewer than two of them have such a weight, EDS' endpoint weights count,
// where gRPC lets all take turns alike: whoever gives endpoints weights and asks
// for a weighted policy means them to be heeded.
package weightedroundrobin

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

var errNoEndpoints = errors.New("no endpoint that picks may reach")

// Builder builds weighted_round_robin policies, whose config is a
// [policy.WeightedRoundRobinConfig]. They take their endpoints from the resolver
// state.
type Builder struct{}

// Name returns "weighted_round_robin".
func (Builder) Name() string { return policy.WeightedRoundRobin }

// Build returns a weighted_round_robin policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		b := &weightedRoundRobin{conn: conn, reported: connectivity.Shutdown}
		b.endpoints = policy.NewEndpointSet(conn, true, b.changed)
		return b
	})
}

// weightedRoundRobin belongs to the owner, all of it but what its endpoints
// report.
type weightedRoundRobin struct {
	conn      *policy.Conn
	config    policy.WeightedRoundRobinConfig
	endpoints *policy.EndpointSet[load]
	lastErr   error

	// picker is the one in use; nil unless READY. timer runs until its weights
	// are next to be updated; nil while no endpoint has reported its load.
	picker *picker
	timer  *policy.Timer

	reported connectivity.State
	stale    bool // the picker no longer says what is
	pending  bool
	closed   bool
}

func (b *weightedRoundRobin) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(policy.WeightedRoundRobinConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.WeightedRoundRobin, s.BalancerConfig)
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

// changed takes an endpoint's new state. What an endpoint reported before it
// connected anew says nothing of it now. One that is READY right after it failed
// was connected all along: it was ejected, and is given back.
func (b *weightedRoundRobin) changed(m *policy.Member[load], from, _ connectivity.State) {
	switch {
	case m.State == connectivity.TransientFailure:
		b.lastErr = m.LastErr
		b.stale = b.stale || b.reported == connectivity.TransientFailure
	case m.State == connectivity.Ready && from != connectivity.TransientFailure:
		m.Own.last.Store(nil)
	}
	b.stale = b.stale || (from == connectivity.Ready) != (m.State == connectivity.Ready)
	b.conn.Mark(b, &b.pending)
}

// Report sends the state up where it says something new.
func (b *weightedRoundRobin) Report() {
	if b.closed {
		return
	}
	state := b.endpoints.Counted.Best()
	if state == b.reported && !b.stale {
		return
	}
	b.reported, b.stale = state, false
	b.picker = nil
	if state == connectivity.Ready {
		b.picker = newPicker(b.endpoints, b.wake, b.conn.Draw())
	}
	b.timer.Stop()
	b.weigh()
	b.conn.UpdateState(balancer.State{ConnectivityState: state, Picker: b.statePicker(state)})
}

func (b *weightedRoundRobin) statePicker(state connectivity.State) balancer.Picker {
	switch state {
	case connectivity.Ready:
		return b.picker
	case connectivity.TransientFailure:
		return &policy.ErrPicker{Err: b.lastErr}
	default:
		return policy.QueuePicker
	}
}

// weigh gives the picker in use the weights of now, and again after each update
// period, as long as an endpoint has reported its load.
func (b *weightedRoundRobin) weigh() {
	b.timer = nil
	if b.picker != nil && b.picker.weigh(time.Now(), b.config.WeightedRoundRobin) {
		b.timer = b.conn.AfterFunc(b.config.WeightUpdatePeriod, b.reweigh)
	}
}

// reweigh is weigh at its time: shares are others then, though no state is.
func (b *weightedRoundRobin) reweigh() {
	b.conn.Mark(b, &b.pending)
	b.weigh()
}

// wake lets weights be updated from now on: the first load was reported. Any
// goroutine may call it.
func (b *weightedRoundRobin) wake() {
	b.conn.Post(func() {
		if b.timer == nil && !b.closed {
			b.timer = b.conn.AfterFunc(b.config.WeightUpdatePeriod, b.reweigh)
		}
	})
}

// ResolverError fails a policy that has no endpoints; with endpoints they go on
// being used.
func (b *weightedRoundRobin) ResolverError(err error) {
	if len(b.endpoints.Order) == 0 {
		b.lastErr, b.stale = err, true
		b.conn.Mark(b, &b.pending)
	}
}

// UpdateSubConnState is not called: the SubConns have listeners.
func (b *weightedRoundRobin) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle does nothing: no endpoint stays IDLE.
func (b *weightedRoundRobin) ExitIdle() {}

func (b *weightedRoundRobin) Close() {
	b.closed, b.picker = true, nil
	b.timer.Stop()
	b.endpoints.Close()
}

// Describe describes every endpoint, in the config's order.
func (b *weightedRoundRobin) Describe() policy.Node {
	n := policy.Node{Policy: policy.WeightedRoundRobin, State: b.reported, Endpoints: b.endpoints.Describe(), Shares: true}
	for i, m := range b.endpoints.Order {
		if n.Endpoints[i].InRotation {
			n.Endpoints[i].Share = m.Own.share
		}
	}
	if b.reported == connectivity.TransientFailure {
		n.Err = b.lastErr
	}
	return n
}

// Summarize counts the endpoints by state.
func (b *weightedRoundRobin) Summarize() policy.Summary {
	return policy.Summary{State: b.reported, Priority: -1, Census: b.endpoints.Census}
}
