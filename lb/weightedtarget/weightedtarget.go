// Package weightedtarget is gRPC's weighted_target: a weighted random choice
// among the children that are READY.
package weightedtarget

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errNoTargets = errors.New("no locality to pick from")

// Builder builds weighted_target policies, whose config is a
// [policy.WeightedTargetConfig].
type Builder struct{}

// Name returns "weighted_target_experimental".
func (Builder) Name() string { return policy.WeightedTarget }

// Build returns a weighted_target policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		return &weightedTarget{conn: conn, children: make(map[resource.Locality]*child), reported: connectivity.Shutdown}
	})
}

// weightedTarget belongs to the owner, all of it.
type weightedTarget struct {
	conn     *policy.Conn
	children map[resource.Locality]*child
	order    []*child // as the config has them
	states   balancer.ConnectivityStateEvaluator
	reported connectivity.State
	lastErr  error // why there is no target
	stale    bool  // the picker reported no longer says what is
	pending  bool
	closed   bool
}

// child is one target. It is the ClientConn that its policy's calls go to.
type child struct {
	*policy.Conn

	parent *weightedTarget
	target policy.Target
	policy *policy.Switch
	state  balancer.State
	// counted is what the aggregate takes the state for: TRANSIENT_FAILURE
	// lasts through CONNECTING.
	counted connectivity.State
	kept    bool // in the config being applied
}

func (b *weightedTarget) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(*policy.WeightedTargetConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.WeightedTarget, s.BalancerConfig)
	}
	for _, c := range b.order {
		c.kept = false
	}
	was := b.order
	b.order = make([]*child, 0, len(cfg.Targets))
	for _, target := range cfg.Targets {
		c := b.children[target.Locality.ID]
		if c == nil {
			c = b.add(target.Locality.ID)
		}
		b.order = append(b.order, c)
		c.kept = true
		c.update(target)
	}
	for id, c := range b.children {
		if !c.kept {
			delete(b.children, id)
			c.close()
		}
	}
	b.stale = b.stale || !slices.Equal(was, b.order) || len(b.order) == 0
	b.lastErr = errNoTargets
	b.conn.Mark(b, &b.pending)
	return nil
}

func (b *weightedTarget) add(id resource.Locality) *child {
	c := &child{
		Conn: b.conn, parent: b,
		state:   balancer.State{ConnectivityState: connectivity.Connecting, Picker: policy.QueuePicker},
		counted: connectivity.Connecting,
	}
	c.policy = policy.NewSwitch(b.conn.Child(c))
	b.children[id] = c
	b.states.RecordTransition(connectivity.Shutdown, c.counted)
	return c
}

// update hands the child its part of the config, unless it has it already. A
// part that it refuses fails that child only.
func (c *child) update(t policy.Target) {
	old := c.target
	c.target = t
	if old.Locality == t.Locality && old.Child.Policy == t.Child.Policy && old.Child.Config == t.Child.Config {
		return
	}
	if old.Locality != nil && old.Locality.Weight != t.Locality.Weight {
		c.parent.stale = true
	}
	_ = c.policy.Update(t.Child) // the Switch has said so
}

// UpdateState takes the child's state. None comes after close.
func (c *child) UpdateState(s balancer.State) {
	c.state = s
	was := c.counted
	if was != connectivity.TransientFailure || s.ConnectivityState != connectivity.Connecting {
		c.parent.states.RecordTransition(was, s.ConnectivityState)
		c.counted = s.ConnectivityState
	}
	// The picker holds the children in the reported state: others' news does
	// not concern picks.
	if reported := c.parent.reported; was == reported || c.counted == reported {
		c.parent.stale = true
	}
	c.parent.conn.Mark(c.parent, &c.parent.pending)
}

func (c *child) close() {
	c.parent.states.RecordTransition(c.counted, connectivity.Shutdown)
	c.policy.Close()
}

// Report sends the aggregate state and a picker up, where picks see a change.
func (b *weightedTarget) Report() {
	if b.closed {
		return
	}
	state := b.states.CurrentState()
	if state == b.reported && (state == connectivity.Connecting || !b.stale) {
		return
	}
	b.reported, b.stale = state, false
	b.conn.UpdateState(balancer.State{ConnectivityState: state, Picker: b.picker()})
}

func (b *weightedTarget) picker() balancer.Picker {
	if len(b.order) == 0 {
		return &policy.ErrPicker{Err: b.lastErr}
	}
	switch b.reported {
	// A pick wakes an IDLE child, so it has to reach one.
	case connectivity.Ready, connectivity.Idle, connectivity.TransientFailure:
	default:
		return policy.QueuePicker
	}
	in := make([]*child, 0, len(b.order))
	for _, c := range b.order {
		if c.counted == b.reported {
			in = append(in, c)
		}
	}
	return newPicker(in, b.conn.Draw())
}

// ResolverError goes to every child. Without any it is why picks fail.
func (b *weightedTarget) ResolverError(err error) {
	if len(b.order) == 0 {
		b.lastErr, b.stale = err, true
		b.conn.Mark(b, &b.pending)
	}
	for _, c := range b.order {
		c.policy.ResolverError(err)
	}
}

// UpdateSubConnState is not called: SubConns have listeners.
func (b *weightedTarget) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle goes to every child.
func (b *weightedTarget) ExitIdle() {
	for _, c := range b.order {
		c.policy.ExitIdle()
	}
}

func (b *weightedTarget) Close() {
	b.closed = true
	for _, c := range b.order {
		c.close()
	}
}

// Describe describes every locality, in the config's order.
func (b *weightedTarget) Describe() policy.Node {
	n := policy.Node{Policy: policy.WeightedTarget, State: b.reported}
	n.Localities = make([]policy.LocalityNode, len(b.order))
	for i, c := range b.order {
		n.Localities[i] = policy.LocalityNode{
			Locality: c.target.Locality.ID,
			Weight:   c.target.Locality.Weight,
			Child:    c.policy.Describe(),
		}
		if b.reported == connectivity.TransientFailure && n.Err == nil {
			n.Err = policy.FailureOf(c.state)
		}
	}
	if len(b.order) == 0 {
		n.Err = b.lastErr
	}
	return n
}

// Summarize sums the children's endpoints.
func (b *weightedTarget) Summarize() policy.Summary {
	s := policy.Summary{State: b.reported, Priority: -1}
	for _, c := range b.order {
		s.Census = s.Census.Add(c.policy.Summarize().Census)
	}
	return s
}
