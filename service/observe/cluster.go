package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
)

// describeTimeout is how long a state dump waits for a tree.
const describeTimeout = 5 * time.Second

var errNoAnswer = fmt.Errorf("the tree did not answer within %v", describeTimeout)

// Clusters returns the summaries of all clusters that picks can use, by name: of their own
// trees, or else of the first xds target that has them.
func (s *State) Clusters() []ClusterSummary {
	out := []ClusterSummary{}
	s.ledger.Hosted().Clusters(func(m *ledger.Cluster, targets []string) {
		summary := summarize(m)
		summary.Targets = targets
		out = append(out, summary)
	})
	slices.SortFunc(out, func(a, b ClusterSummary) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Cluster returns the state of a cluster in an xds target, with or without its endpoints.
// Without a target, it uses the tree that Clusters uses. It fails with UnknownTarget,
// UnknownCluster, and with Internal if the tree does not answer in 5 s.
func (s *State) Cluster(ctx context.Context, name, target string, endpoints bool) (*ClusterState, error) {
	m, err := s.ledger.Find(name, target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, errNoAnswer)
	defer cancel()
	generation := m.Target.Channel.Generation() // the description is not older
	node, err := m.Target.Channel.DescribeCluster(ctx, name)
	switch {
	case errors.Is(err, lb.ErrClosed):
		return nil, s.ledger.Gone(name, m.Target.Label)
	case errors.Is(err, errNoAnswer):
		e := fault.Errorf(fault.Internal, "cluster %q: %v", name, errNoAnswer)
		e.Cluster, e.Target = name, m.Target.Label
		return nil, e
	case err != nil:
		return nil, fault.FromContext(err)
	}
	out := s.describe(m, node, endpoints)
	out.Generation = generation
	out.Targets = s.ledger.Hosted().LivesIn(name)
	return out, nil
}

// AwaitCluster returns when the generation of the cluster is not g, wait has passed, or
// the service drains.
func (s *State) AwaitCluster(ctx context.Context, name, target string, g int64, wait time.Duration) error {
	m, err := s.ledger.Find(name, target)
	if err != nil {
		return err
	}
	s.waiting.WithLabelValues("longpoll").Inc()
	defer s.waiting.WithLabelValues("longpoll").Dec()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.options.Draining, cancel)()
	m.Target.Channel.WaitForGeneration(waiting, g)
	return fault.FromContext(ctx.Err())
}

func summarize(m *ledger.Cluster) ClusterSummary {
	cc := m.ClusterConfig()
	channel := m.Target.Channel
	sum := channel.ClusterSummary(m.Name)
	out := ClusterSummary{
		Name: m.Name, Target: m.Target.Label, State: sum.State.String(), PriorityInUse: sum.Priority,
		Source: cc.AssignmentFrom.Source.String(), Version: cc.AssignmentFrom.Version, Updated: ledger.Updated(cc), Stale: m.Stale(), Generation: channel.Generation(),
	}
	var all policy.Census
	for _, c := range sum.Priorities {
		all = all.Add(c)
	}
	out.Endpoints = countsOf(all)
	for _, l := range m.Localities() {
		out.Endpoints.Total += len(l.Endpoints)
	}
	out.Endpoints.Unhealthy = out.Endpoints.Total - m.Usable()
	if len(sum.Priorities) > 1 && sum.Priority >= 0 && sum.Priority < len(sum.Priorities) {
		out.EndpointsInUse = endpointsOf(m, sum.Priority, sum.Priorities[sum.Priority])
	}
	if l, ok := m.Own(); ok {
		out.Breaker = breakerState(l)
	}
	return out
}

func countsOf(c policy.Census) EndpointCounts {
	return EndpointCounts{
		Ready: c.Ready, Connecting: c.Connecting, Idle: c.Idle, TransientFailure: c.TransientFailure, Ejected: c.Ejected,
	}
}

// endpointsOf counts the endpoints of one priority. census has the usable ones.
func endpointsOf(m *ledger.Cluster, priority int, census policy.Census) *EndpointCounts {
	out := countsOf(census)
	for p, l := range m.Localities() {
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
