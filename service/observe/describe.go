package observe

import (
	"errors"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
)

// describe joins the configuration of a cluster and the description of its tree.
func (s *State) describe(m *ledger.Cluster, root policy.Node, endpoints bool) *ClusterState {
	out := &ClusterState{
		ClusterSummary: summarize(m),
		AmbientErrors:  ambientList(m.Ambient()),
		Drops:          []DropState{},
		Priorities:     []PriorityState{},
		Leases:         m.Totals.Leases.Load(),
		Error:          fault.Text(root.Err),
	}
	if !out.Updated.IsZero() {
		out.Age = time.Since(out.Updated).Round(time.Second).String()
	}
	if out.State != warming {
		out.StateSince = Optional(m.Target.Channel.ClusterSummary(m.Name).Since)
	}
	cc := m.ClusterConfig()
	out.ConfigSource = cc.ClusterFrom.Source.String()
	if cc.Err != nil {
		return out
	}
	out.Type = cc.Cluster.Type.String()
	out.DNSHostname = cc.Cluster.DNSHostname
	if cc.Cluster.Type == resource.ClusterEDS {
		out.EDSServiceName = cc.Cluster.AssignmentName()
	}
	out.Security = securityOf(cc.Cluster.Security)
	if l, ok := m.Own(); ok {
		out.Drops = dropStates(l)
	}
	if cc.Cluster.Type == resource.ClusterAggregate {
		out.Leaves = s.leafStates(m, root)
	} else {
		out.Policy = difference.PolicyName(cc.Cluster.Policy)
		out.ConnectMode, out.NoticeTime = s.connectMode(cc.Cluster)
	}
	out.Priorities = priorities(m, root, endpoints)
	for _, leaf := range m.Config.Leaves(m.Name) {
		out.Overlays = append(out.Overlays, overlays.Describe(leaf.Overlays(), leaf)...)
	}
	return out
}

func (s *State) connectMode(c *resource.Cluster) (mode, notice string) {
	m := c.Connect
	if m == resource.ConnectDefault {
		m = s.options.ConnectMode
	}
	notice = "never"
	if d := lb.NoticeTime(m); d >= 0 {
		notice = d.String()
	}
	return string(m), notice
}

// securityOf returns nil for connections without TLS.
func securityOf(s *resource.Security) *SecurityState {
	if s == nil {
		return nil
	}
	out := &SecurityState{
		Root: s.RootInstance, SystemRoots: s.SystemRoots, Identity: s.IdentityInstance,
		SNI: s.SNI, AutoHostSNI: s.AutoHostSNI, AutoSANValidation: s.AutoSANValidation,
	}
	for i := range s.SANs {
		out.SANs = append(out.SANs, s.SANs[i].Words())
	}
	return out
}

// Priorities describes the priorities of a cluster of a config, with the description of a tree of it.
// It has no counts.
func Priorities(config *resource.Config, cluster string, root policy.Node) []PriorityState {
	return priorities(&ledger.Cluster{Record: &ledger.Record{Name: cluster}, Config: config}, root, true)
}

// priorities joins the configured priorities, including unhealthy endpoints, with the
// tree's description: those of the cluster, or of its leaves in a row.
func priorities(m *ledger.Cluster, root policy.Node, endpoints bool) []PriorityState {
	nodes := prioritiesOf(root)
	leaves := m.LeafNames()
	if leaves != nil {
		nodes = flattenLeaves(nodes, leaves)
	}
	out := []PriorityState{}
	for i, leaf := range leaves { // each leaf has at least one
		out = append(out, newPriority(i, leaf))
	}
	overlaid := maskings(m)
	for priority, l := range m.Localities() {
		for len(out) <= priority {
			out = append(out, newPriority(len(out), ""))
		}
		p := &out[priority]
		state := locality(l, m.Places.Count(priority, l.ID), endpoints)
		if by := overlaid[l]; by != nil {
			markOverlaid(&state, l, by)
		}
		p.Localities = append(p.Localities, state)
	}
	for i := range min(len(out), len(nodes)) {
		fill(&out[i], nodes[i])
	}
	return out
}

// masking returns the overlay that takes an endpoint of a priority out of use, or nil.
type masking func(priority uint32, e *resource.Endpoint) *resource.Overlay

// maskings returns what the overlays of each locality take out of use, if there are any.
func maskings(m *ledger.Cluster) map[*resource.LocalityEndpoints]masking {
	out := make(map[*resource.LocalityEndpoints]masking)
	for _, leaf := range m.Config.Leaves(m.Name) {
		if leaf.Overlays() == nil || leaf.Assignment == nil {
			continue
		}
		by := overlay.Masking(leaf.Overlays())
		for _, l := range leaf.Assignment.Localities {
			out[l] = by
		}
	}
	return out
}

// markOverlaid sets the overlays that take the endpoints of a locality out of use.
func markOverlaid(s *LocalityState, l *resource.LocalityEndpoints, by masking) {
	for i := range s.Endpoints {
		if o := by(l.Priority, l.Endpoints[i]); o != nil {
			s.Endpoints[i].Overlay = o.ID
		}
	}
}

func newPriority(n int, leaf string) PriorityState {
	return PriorityState{Priority: n, Cluster: leaf, State: connectivity.Idle.String(), Localities: []LocalityState{}}
}

func locality(l *resource.LocalityEndpoints, picks uint64, endpoints bool) LocalityState {
	s := LocalityState{
		Locality: Locality(l.ID), Weight: l.Weight, Share: new(0.0), State: connectivity.Idle.String(), Picks: picks,
	}
	if !endpoints {
		return s
	}
	s.Endpoints = make([]EndpointState, len(l.Endpoints))
	for i, e := range l.Endpoints {
		s.Endpoints[i] = EndpointState{
			Address: e.Addresses[0], Addresses: e.Addresses[1:], Hostname: e.Hostname, Weight: e.Weight,
			Health: e.Health.String(), State: connectivity.Idle.String(), Share: new(0.0),
		}
		if !e.Usable() {
			s.Endpoints[i].State = "UNHEALTHY"
		}
	}
	return s
}

// fill adds the tree's description to a priority.
func fill(p *PriorityState, n policy.PriorityNode) {
	p.InUse, p.Why, p.Started = n.InUse, n.Why, n.Started
	p.State = n.Child.State.String()
	p.InUseSince = Optional(n.InUseSince)
	p.FailoverAt, p.ForgetAt, p.Error = Optional(n.FailoverAt), Optional(n.ForgetAt), fault.Text(n.Child.Err)
	// A policy over all localities has endpoints, and shares of its own.
	over := find(n.Child, func(n policy.Node) bool { return n.Localities != nil || n.Endpoints != nil })
	if over.Endpoints != nil {
		for i := range p.Localities {
			fillTogether(p, &p.Localities[i], over)
		}
		return
	}
	nodes := make(map[Locality]policy.LocalityNode)
	var ready uint64
	for _, l := range over.Localities {
		nodes[Locality(l.Locality)] = l
		if l.Child.State == connectivity.Ready {
			ready += uint64(l.Weight)
		}
	}
	for i := range p.Localities {
		l := &p.Localities[i]
		node, ok := nodes[l.Locality]
		if !ok {
			continue
		}
		l.State = node.Child.State.String()
		if p.InUse && node.Child.State == connectivity.Ready {
			*l.Share = float64(l.Weight) / float64(ready)
		}
		fillEndpoints(l, find(node.Child, func(n policy.Node) bool { return n.Endpoints != nil }), *l.Share)
	}
}

// fillTogether adds the description of a policy over all localities to a locality.
func fillTogether(p *PriorityState, l *LocalityState, over policy.Node) {
	l.State = over.State.String()
	share := 0.0
	if p.InUse && over.State == connectivity.Ready {
		share = 1
	}
	for _, n := range over.Endpoints {
		if Locality(n.Endpoint.Locality) == l.Locality {
			*l.Share += share * n.Share
		}
	}
	if share > 0 && !over.Shares {
		l.Share = nil
	}
	fillEndpoints(l, over, share)
}

// fillEndpoints adds the description of their policy to a locality's endpoints. share is
// the policy's part of all picks.
func fillEndpoints(l *LocalityState, of policy.Node, share float64) {
	if l.Endpoints == nil {
		return
	}
	byAddress := make(map[string]policy.EndpointNode, len(of.Endpoints))
	for _, n := range of.Endpoints {
		byAddress[n.Endpoint.Addresses[0]] = n
	}
	for i := range l.Endpoints {
		e := &l.Endpoints[i]
		n, ok := byAddress[e.Address]
		if !ok {
			continue
		}
		e.State = n.State.String()
		if *e.Share = share * n.Share; share > 0 && !of.Shares {
			e.Share = nil
		}
		e.NeverPicked = of.Arcs != nil && n.Share == 0 && (n.State == connectivity.Ready || n.State == connectivity.Idle)
		e.LastError = fault.Text(n.LastErr)
		if ejected, ok := errors.AsType[*policy.EjectedError](n.LastErr); ok && n.State == connectivity.TransientFailure {
			e.State, e.EjectedUntil = "EJECTED", Optional(ejected.Until)
		}
	}
}

// find returns the first wanted description, from the top along the children.
func find(n policy.Node, wanted func(policy.Node) bool) policy.Node {
	for !wanted(n) && n.Child != nil {
		n = *n.Child
	}
	return n
}

// Optional returns a time in UTC, or nil for none.
func Optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

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
		state := LeafState{Name: name, InUse: n.InUse, Why: n.Why, State: leafState(n).String(), Skipped: fault.Text(n.Skipped), Drops: []DropState{}}
		if l, ok := held[name]; ok {
			state.Policy, state.Breaker, state.Drops = difference.PolicyName(l.Cluster.Policy), breakerState(l), dropStates(l)
			state.Security = securityOf(l.Cluster.Security)
			state.ConnectMode, state.NoticeTime = s.connectMode(l.Cluster)
		}
		out = append(out, state)
	}
	return out
}

func breakerState(l ledger.Leaf) *BreakerState {
	b := l.Breaker()
	out := &BreakerState{InFlight: b.InFlight, MaxRequests: b.MaxRequests, LimitFrom: "default", Open: b.Open, Rejected: b.Rejected}
	if l.Cluster.MaxRequestsConfigured {
		out.LimitFrom = "config"
	}
	if s, ok := l.Fleet(); ok {
		out.Fleet = new(FleetShare(s))
	}
	return out
}

func dropStates(l ledger.Leaf) []DropState {
	if l.Assignment == nil || len(l.Assignment.Drops) == 0 {
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
	if !leaf.InUse && (p.InUse || !leaf.Started) || p.InUse && below {
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
