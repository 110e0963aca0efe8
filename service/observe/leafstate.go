package observe

import (
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/ledger"
)

// leafStates describes the leaves of an AGGREGATE.
func (s *State) leafStates(m *ledger.Cluster, root policy.Node) []LeafState {
	nodes := make(map[string]policy.PriorityNode)
	for _, n := range prioritiesOf(root) {
		nodes[n.Name] = n
	}
	held := make(map[string]ledger.Leaf, len(m.Leaves))
	for _, l := range m.Leaves {
		held[l.Cluster.Name] = l
	}
	var out []LeafState
	for name := range m.Config.Leaves(m.Name) {
		n := nodes[name]
		state := LeafState{Name: name, InUse: n.InUse, Why: n.Why, State: leafState(n).String(), Drops: []DropState{}}
		if n.Skipped != nil {
			state.Skipped = n.Skipped.Error()
		}
		if l, ok := held[name]; ok {
			state.Policy, state.Breaker, state.Drops = policyName(l.Cluster.Policy), breakerState(l), dropStates(l)
			state.Security = securityOf(l.Cluster.Security)
			state.ConnectMode, state.NoticeTime = s.connectMode(l.Cluster)
		}
		out = append(out, state)
	}
	return out
}

// breakerState returns the circuit breaker of a leaf.
func breakerState(l ledger.Leaf) *BreakerState {
	b := l.Breaker()
	out := &BreakerState{InFlight: b.InFlight, MaxRequests: b.MaxRequests, LimitFrom: "default", Open: b.Open(), Rejected: b.Rejected}
	if l.Cluster.MaxRequestsConfigured {
		out.LimitFrom = "config"
	}
	return out
}

// dropStates returns a leaf's drop categories, in order.
func dropStates(l ledger.Leaf) []DropState {
	if l.Assignment == nil {
		return []DropState{}
	}
	out := make([]DropState, len(l.Assignment.Drops))
	counts := l.Counters.Drops()
	for i, d := range l.Assignment.Drops {
		out[i] = DropState{Category: d.Category, PerMillion: d.PerMillion, Dropped: counts[d.Category]}
	}
	return out
}

// leafState returns the connectivity state that is shown for a leaf.
func leafState(n policy.PriorityNode) connectivity.State {
	if n.Skipped != nil {
		return connectivity.TransientFailure
	}
	return n.Child.State
}

// prioritiesOf returns the children of the first priority policy at or below n.
func prioritiesOf(n policy.Node) []policy.PriorityNode {
	return find(n, func(n policy.Node) bool { return n.Priorities != nil }).Priorities
}

// flattenLeaves returns the priorities of all leaves in a row, as the tree describes
// them. slots has for each of them the leaf that it belongs to.
func flattenLeaves(leaves []policy.PriorityNode, slots []string) []policy.PriorityNode {
	first := make(map[string]int, len(leaves)) // priority of each leaf
	for i, name := range slots {
		if _, ok := first[name]; !ok {
			first[name] = i
		}
	}
	out := make([]policy.PriorityNode, len(slots))
	for place, l := range leaves {
		at, ok := first[l.Name]
		if !ok {
			continue // the tree still has another config
		}
		var inner []policy.PriorityNode
		if l.Skipped == nil {
			inner = prioritiesOf(l.Child)
		}
		for i := 0; at+i < len(slots) && slots[at+i] == l.Name; i++ {
			if i < len(inner) {
				out[at+i] = inLeaf(l, inner[i], place > 0 && i == 0)
			} else {
				out[at+i] = ofLeaf(l, i == 0)
			}
		}
	}
	return out
}

// inLeaf describes a priority of a leaf as one of the AGGREGATE's. below is true for
// the first priority of a leaf that is not the first.
func inLeaf(leaf, p policy.PriorityNode, below bool) policy.PriorityNode {
	switch {
	case !leaf.InUse && (p.InUse || !leaf.Started), p.InUse && below:
		p.Why = leaf.Why
	}
	if p.InUse && !leaf.FailoverAt.IsZero() && (p.FailoverAt.IsZero() || leaf.FailoverAt.Before(p.FailoverAt)) {
		p.FailoverAt = leaf.FailoverAt
	}
	if !leaf.ForgetAt.IsZero() {
		p.ForgetAt = leaf.ForgetAt
	}
	p.Started = p.Started && leaf.Started
	p.InUse = p.InUse && leaf.InUse
	switch {
	case !p.InUse:
		p.InUseSince = time.Time{}
	case leaf.InUseSince.After(p.InUseSince):
		p.InUseSince = leaf.InUseSince
	}
	return p
}

// ofLeaf describes a priority of a leaf whose tree does not have it: the leaf is not
// started, is skipped or fails as a whole.
func ofLeaf(leaf policy.PriorityNode, first bool) policy.PriorityNode {
	p := policy.PriorityNode{Why: leaf.Why, Child: policy.Node{State: leafState(leaf), Err: leaf.Child.Err}}
	if leaf.Skipped != nil {
		p.Child.Err = leaf.Skipped
	}
	if first {
		p.InUse, p.InUseSince, p.Started = leaf.InUse, leaf.InUseSince, leaf.Started && leaf.Skipped == nil
	}
	return p
}
