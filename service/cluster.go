package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// describeTimeout is how long a state dump waits for a tree.
const describeTimeout = 5 * time.Second

var errNoAnswer = fmt.Errorf("the tree did not answer within %v", describeTimeout)

// Clusters returns every cluster that picks can reach in short, in the order of
// their names: as it is in its own tree, else in that of the first xds target.
func (s *Service) Clusters() []ClusterSummary {
	out := []ClusterSummary{}
	s.targets.current.Load().each(func(m *member, targets []string) {
		summary := summarize(m)
		summary.Targets = targets
		out = append(out, summary)
	})
	slices.SortFunc(out, func(a, b ClusterSummary) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Cluster returns the aggregated state of a cluster in the tree of an xds target,
// with or without each of its endpoints. Without a target it is described as
// Clusters does. It fails with UnknownTarget or UnknownCluster, and with Internal
// where the tree does not answer in 5 s.
func (s *Service) Cluster(ctx context.Context, name, target string, endpoints bool) (*ClusterState, error) {
	m, err := s.member(name, target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, errNoAnswer)
	defer cancel()
	generation := m.target.channel.Generation() // what is described is no older
	node, err := m.target.channel.DescribeCluster(ctx, name)
	switch {
	case errors.Is(err, lb.ErrClosed):
		return nil, s.closed(name, m.target.label)
	case errors.Is(err, errNoAnswer):
		e := errorf(Internal, "cluster %q: %v", name, errNoAnswer)
		e.Cluster, e.Target = name, m.target.label
		return nil, e
	case err != nil:
		return nil, callerGone(err)
	}
	out := s.describe(m, node, endpoints)
	out.Generation = generation
	out.Targets = s.targets.current.Load().livesIn(name)
	return out, nil
}

// member returns a cluster as it is in a target, or without one where Clusters
// finds it.
func (s *Service) member(cluster, target string) (*member, error) {
	if target == "" {
		if m := s.targets.current.Load().member(cluster); m != nil {
			return m, nil
		}
		return nil, unknownCluster(cluster)
	}
	t, err := s.xdsTarget(target)
	if err != nil {
		return nil, err
	}
	if m := t.newest.Load().members[cluster]; m != nil {
		return m, nil
	}
	e := errorf(UnknownCluster, "no route of %s leads to cluster %q", t.label, cluster)
	e.Cluster, e.Target = cluster, t.label
	return nil, e
}

// AwaitCluster returns once the generation of the cluster, as Cluster describes
// it, is not g, wait has passed, or the service drains.
func (s *Service) AwaitCluster(ctx context.Context, name, target string, g int64, wait time.Duration) error {
	m, err := s.member(name, target)
	if err != nil {
		return err
	}
	s.metrics.watchers.WithLabelValues("longpoll").Inc()
	defer s.metrics.watchers.WithLabelValues("longpoll").Dec()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	m.target.channel.WaitForGeneration(waiting, g)
	return callerGone(ctx.Err())
}

func summarize(m *member) ClusterSummary {
	cc := m.clusterConfig()
	channel := m.target.channel
	sum := channel.ClusterSummary(m.cluster)
	out := ClusterSummary{
		Name: m.cluster, Target: m.target.label, State: sum.State.String(), PriorityInUse: sum.Priority,
		Source: cc.AssignmentFrom.Source.String(), Version: cc.AssignmentFrom.Version, Updated: updated(cc), Stale: m.stale.Load(), Generation: channel.Generation(),
	}
	var all policy.Census
	for _, c := range sum.Priorities {
		all = all.Add(c)
	}
	out.Endpoints = countsOf(all)
	for _, l := range localities(m.config, m.cluster) {
		out.Endpoints.Total += len(l.Endpoints)
	}
	out.Endpoints.Unhealthy = out.Endpoints.Total - m.usable()
	if len(sum.Priorities) > 1 && sum.Priority >= 0 && sum.Priority < len(sum.Priorities) {
		out.EndpointsInUse = m.endpointsOf(sum.Priority, sum.Priorities[sum.Priority])
	}
	if l, ok := m.own(); ok {
		b := l.breaker()
		out.Breaker = &b
	}
	return out
}

func countsOf(c policy.Census) EndpointCounts {
	return EndpointCounts{
		Ready: c.Ready, Connecting: c.Connecting, Idle: c.Idle, TransientFailure: c.TransientFailure, Ejected: c.Ejected,
	}
}

// endpointsOf counts the endpoints of one priority. census has those that picks
// may reach.
func (m *member) endpointsOf(priority int, census policy.Census) *EndpointCounts {
	out := countsOf(census)
	for p, l := range localities(m.config, m.cluster) {
		if p != priority {
			continue
		}
		out.Total += len(l.Endpoints)
		for _, e := range l.Endpoints {
			if !e.Usable() {
				out.Unhealthy++
			}
		}
	}
	return &out
}

// updated is when the newest of the cluster's resources became what it is.
func updated(cc *resource.ClusterConfig) time.Time {
	if cc.ClusterFrom.Updated.After(cc.AssignmentFrom.Updated) {
		return cc.ClusterFrom.Updated.UTC()
	}
	return cc.AssignmentFrom.Updated.UTC()
}
