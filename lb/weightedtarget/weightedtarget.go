// Package weightedtarget is gRPC's weighted_target: a weighted random choice of a
// READY child.
package weightedtarget

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errNoTargets = errors.New("no locality to pick from")

// Builder returns the builder of weighted_target policies, whose config is a
// *[policy.WeightedTargetConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.WeightedTarget, func(conn *policy.Conn) policy.Policy {
		b := new(weightedTarget)
		b.Init(conn, policy.WeightedTarget, b, b.childChanged)
		return b
	})
}

// weightedTarget belongs to the owner. Its children are in the config's order.
type weightedTarget struct {
	policy.Children[resource.Locality, target]
}

// child is one target.
type child = policy.ChildPolicy[resource.Locality, target]

// target is what the policy keeps of a child's config.
type target struct {
	*policy.Locality

	policy string
	config serviceconfig.LoadBalancingConfig
}

func (b *weightedTarget) Update(given policy.Child) error {
	cfg, ok := given.Config.(*policy.WeightedTargetConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.WeightedTarget, given.Config)
	}
	before := b.Order
	order := make([]*child, len(cfg.Targets))
	for i, t := range cfg.Targets {
		id := t.Locality.ID
		c := b.Child(id)
		// A locality that had no endpoints starts anew when it gets some: its
		// TRANSIENT_FAILURE, which would last until READY, is not theirs. grpc-go has no
		// child for it until then.
		if c == nil || len(c.Own.Endpoints) == 0 && len(t.Locality.Endpoints) > 0 {
			c = b.Add(id, b.Conn.Child)
		}
		order[i] = c
		b.update(c, t)
	}
	b.Keep(order)
	b.Stale = b.Stale || !slices.Equal(before, order) || len(order) == 0
	b.Err = errNoTargets
	b.Mark()
	return nil
}

// update gives a child its part of the config, if that has changed. A part that is
// rejected fails that child only.
func (b *weightedTarget) update(c *child, t policy.Target) {
	old := c.Own
	c.Own = target{t.Locality, t.Child.Policy, t.Child.Config}
	if old == c.Own {
		return
	}
	if old.Locality != nil && old.Locality.Weight != t.Locality.Weight {
		b.Stale = true
	}
	_ = c.Update(t.Child) // the Switch reports the error as the child's failure
}

// childChanged makes the policy report. The picker has only the children in the
// reported state.
func (b *weightedTarget) childChanged(c *child, counted connectivity.State) {
	if counted == b.Reported || c.Counted == b.Reported {
		b.Stale = true
	}
	b.Mark()
}

func (b *weightedTarget) Report() {
	state := b.Aggregate()
	if state == connectivity.Connecting && state == b.Reported {
		return
	}
	b.Send(state, b.Picker)
}

// Picker returns the picker of a state. In IDLE, picks connect the children.
func (b *weightedTarget) Picker(state connectivity.State) balancer.Picker {
	if len(b.Order) == 0 || state == connectivity.Connecting {
		return b.Base.Picker(state)
	}
	in := make([]*child, 0, len(b.Order))
	for _, c := range b.Order {
		if c.Counted == state {
			in = append(in, c)
		}
	}
	return newPicker(in, b.Draw())
}

func (b *weightedTarget) Describe() policy.Node {
	n := policy.Node{Policy: policy.WeightedTarget, State: b.Reported}
	n.Localities = make([]policy.LocalityNode, len(b.Order))
	for i, c := range b.Order {
		n.Localities[i] = policy.LocalityNode{
			Locality: c.Own.ID,
			Weight:   c.Own.Weight,
			Child:    c.Describe(),
		}
		if b.Reported == connectivity.TransientFailure && n.Err == nil {
			n.Err = policy.FailureOf(c.State)
		}
	}
	if len(b.Order) == 0 {
		n.Err = b.Err
	}
	return n
}

func (b *weightedTarget) Summarize() policy.Summary {
	s := policy.Summary{State: b.Reported, Priority: -1}
	for _, c := range b.Order {
		s.Census = s.Census.Add(c.Summarize().Census)
	}
	return s
}
