package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// describeTimeout is how long a state dump waits for a tree.
const describeTimeout = 5 * time.Second

// Clusters returns every cluster in short, in the order of their names.
func (s *Service) Clusters(context.Context) ([]ClusterSummary, error) {
	all := s.targets.all()
	out := make([]ClusterSummary, len(all))
	for i, t := range all {
		out[i] = s.summarize(t)
	}
	return out, nil
}

// Cluster returns the aggregated state of a cluster, with or without each of
// its endpoints.
func (s *Service) Cluster(ctx context.Context, name string, endpoints bool) (*ClusterState, error) {
	t, err := s.target(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, fmt.Errorf("the tree did not answer within %v", describeTimeout))
	defer cancel()
	root, err := t.channel.Describe(ctx)
	if errors.Is(err, lb.ErrClosed) {
		return nil, errorf(UnknownCluster, "cluster %q was removed", name)
	}
	if err != nil {
		return nil, callerGone(err)
	}
	return s.describe(t, root.Clusters[name], endpoints), nil
}

// AwaitCluster returns once the cluster's generation is not g, or wait has
// passed.
func (s *Service) AwaitCluster(ctx context.Context, name string, g int64, wait time.Duration) error {
	t, err := s.target(name)
	if err != nil {
		return err
	}
	s.metrics.watchers.WithLabelValues("longpoll").Inc()
	defer s.metrics.watchers.WithLabelValues("longpoll").Dec()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	t.channel.WaitForGeneration(waiting, g)
	return callerGone(ctx.Err())
}

func (s *Service) summarize(t *target) ClusterSummary {
	cc := t.clusterConfig()
	sum := t.channel.Summary().Clusters[t.cluster]
	out := ClusterSummary{
		Name: t.cluster, State: sum.State.String(), PriorityInUse: sum.Priority,
		Source: cc.AssignmentFrom.Source.String(), Updated: updated(cc), Generation: t.channel.Generation(),
	}
	for _, c := range sum.Priorities {
		out.Endpoints.Ready += c.Ready
		out.Endpoints.Connecting += c.Connecting
		out.Endpoints.Idle += c.Idle
		out.Endpoints.TransientFailure += c.TransientFailure
	}
	if cc.Assignment != nil {
		for _, l := range cc.Assignment.Localities {
			out.Endpoints.Total += len(l.Endpoints)
		}
		out.Endpoints.Unhealthy = out.Endpoints.Total - cc.Assignment.Usable()
	}
	if cc.Err == nil {
		out.Breaker = s.breaker(t, cc.Cluster)
	}
	return out
}

func (s *Service) breaker(t *target, c *resource.Cluster) BreakerState {
	b := BreakerState{MaxRequests: c.MaxRequests, LimitFrom: "default"}
	if c.MaxRequestsConfigured {
		b.LimitFrom = "config"
	}
	if counters := s.counters.Get(t.service()); counters != nil {
		b.InFlight = counters.Breaker.InFlight()
		b.Rejected = counters.Breaker.Rejected()
	}
	b.Open = b.InFlight >= int64(b.MaxRequests)
	return b
}

// updated is when the newest of the cluster's resources became what it is.
func updated(cc *resource.ClusterConfig) time.Time {
	if cc.ClusterFrom.Updated.After(cc.AssignmentFrom.Updated) {
		return cc.ClusterFrom.Updated.UTC()
	}
	return cc.AssignmentFrom.Updated.UTC()
}

func (s *Service) describe(t *target, root policy.Node, endpoints bool) *ClusterState {
	out := &ClusterState{
		ClusterSummary: s.summarize(t),
		Drops:          []DropState{},
		Priorities:     []PriorityState{},
		Leases:         t.leases.Load(),
	}
	out.Age = time.Since(out.Updated).Round(time.Second).String()
	if root.Err != nil {
		out.Error = root.Err.Error()
	}
	cc := t.clusterConfig()
	out.ConfigSource = cc.ClusterFrom.Source.String()
	if cc.Err != nil {
		return out
	}
	out.EDSServiceName = cc.Cluster.AssignmentName()
	out.Policy = policyName(cc.Cluster.Policy)
	mode := cc.Cluster.Connect
	if mode == resource.ConnectDefault {
		mode = s.options.ConnectMode
	}
	out.ConnectMode, out.NoticeTime = string(mode), "never"
	if d := lb.NoticeTime(mode); d >= 0 {
		out.NoticeTime = d.String()
	}
	if cc.Assignment == nil {
		return out
	}
	out.Drops = s.drops(t, cc.Assignment)
	out.Priorities = priorities(t, cc.Assignment, root, endpoints)
	return out
}

func policyName(p resource.Policy) string {
	if p.Child == nil {
		return string(p.Name)
	}
	return string(p.Name) + "/" + policyName(*p.Child)
}

func (s *Service) drops(t *target, a *resource.Assignment) []DropState {
	out := make([]DropState, len(a.Drops))
	var counts map[string]uint64
	if counters := s.counters.Get(t.service()); counters != nil {
		counts = counters.Drops()
	}
	for i, d := range a.Drops {
		out[i] = DropState{Category: d.Category, PerMillion: d.PerMillion, Dropped: counts[d.Category]}
	}
	return out
}

// priorities joins what was configured, unhealthy endpoints and all, with what
// the tree says of it.
func priorities(t *target, a *resource.Assignment, root policy.Node, endpoints bool) []PriorityState {
	nodes := find(root, func(n policy.Node) bool { return n.Priorities != nil }).Priorities
	picks := localityPicks(t)
	out := make([]PriorityState, 0, len(nodes))
	for _, l := range a.Localities {
		for len(out) <= int(l.Priority) {
			out = append(out, PriorityState{Priority: len(out), State: connectivity.Idle.String(), Localities: []LocalityState{}})
		}
		p := &out[l.Priority]
		p.Localities = append(p.Localities, locality(l, picks[spot{int(l.Priority), l.ID}], endpoints))
	}
	for i := range min(len(out), len(nodes)) {
		fill(&out[i], nodes[i])
	}
	return out
}

func locality(l *resource.LocalityEndpoints, picks uint64, endpoints bool) LocalityState {
	s := LocalityState{
		Locality: localityOf(l.ID), Weight: l.Weight, State: connectivity.Idle.String(), Picks: picks,
	}
	if !endpoints {
		return s
	}
	s.Endpoints = make([]EndpointState, len(l.Endpoints))
	for i, e := range l.Endpoints {
		s.Endpoints[i] = EndpointState{
			Address: e.Addresses[0], Addresses: e.Addresses[1:], Hostname: e.Hostname, Weight: e.Weight,
			Health: e.Health.String(), State: connectivity.Idle.String(),
		}
		if !e.Usable() {
			s.Endpoints[i].State = "UNHEALTHY"
		}
	}
	return s
}

// fill adds to a priority what the tree says of it.
func fill(p *PriorityState, n policy.PriorityNode) {
	p.InUse, p.Why, p.Started = n.InUse, n.Why, n.Started
	p.State = n.Child.State.String()
	p.FailoverAt, p.ForgetAt = optional(n.FailoverAt), optional(n.ForgetAt)
	if n.Child.Err != nil {
		p.Error = n.Child.Err.Error()
	}
	nodes := make(map[Locality]policy.LocalityNode)
	var ready uint64
	for _, l := range find(n.Child, func(n policy.Node) bool { return n.Localities != nil }).Localities {
		nodes[localityOf(l.Locality)] = l
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
			l.Share = float64(l.Weight) / float64(ready)
		}
		fillEndpoints(l, find(node.Child, func(n policy.Node) bool { return n.Endpoints != nil }).Endpoints)
	}
}

func fillEndpoints(l *LocalityState, nodes []policy.EndpointNode) {
	if l.Endpoints == nil {
		return
	}
	byAddress := make(map[string]policy.EndpointNode, len(nodes))
	rotation := 0
	for _, n := range nodes {
		byAddress[n.Endpoint.Addresses[0]] = n
		if n.InRotation {
			rotation++
		}
	}
	for i := range l.Endpoints {
		e := &l.Endpoints[i]
		n, ok := byAddress[e.Address]
		if !ok {
			continue
		}
		e.State = n.State.String()
		if n.InRotation {
			e.Share = l.Share / float64(rotation)
		}
		if n.LastErr != nil {
			e.LastError = n.LastErr.Error()
		}
	}
}

// find returns the first description, from the top along the children, that
// has what is wanted.
func find(n policy.Node, wanted func(policy.Node) bool) policy.Node {
	for !wanted(n) && n.Child != nil {
		n = *n.Child
	}
	return n
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// spot is a locality of a priority.
type spot struct {
	priority int
	locality resource.Locality
}

// localityPicks sums a target's good picks by locality and priority.
func localityPicks(t *target) map[spot]uint64 {
	out := make(map[spot]uint64)
	for p, n := range t.places.read() {
		if p.load != nil {
			out[spot{p.priority, p.load.Locality}] += n
		}
	}
	return out
}
