package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/resource"
)

// describeTimeout is how long a state dump waits for a tree.
const describeTimeout = 5 * time.Second

var errNoAnswer = fmt.Errorf("the tree did not answer within %v", describeTimeout)

// Clusters returns every cluster in short, in the order of their names.
func (s *Service) Clusters() []ClusterSummary {
	all := s.targets.all()
	out := make([]ClusterSummary, len(all))
	for i, t := range all {
		out[i] = s.summarize(t)
	}
	return out
}

// Cluster returns the aggregated state of a cluster, with or without each of
// its endpoints. It fails with Internal where the tree does not answer in 5 s.
func (s *Service) Cluster(ctx context.Context, name string, endpoints bool) (*ClusterState, error) {
	t, err := s.target(name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, errNoAnswer)
	defer cancel()
	root, err := t.channel.Describe(ctx)
	switch {
	case errors.Is(err, lb.ErrClosed):
		return nil, s.closed(name)
	case errors.Is(err, errNoAnswer):
		e := errorf(Internal, "cluster %q: %v", name, errNoAnswer)
		e.Cluster = name
		return nil, e
	case err != nil:
		return nil, callerGone(err)
	}
	return s.describe(t, root.Clusters[name], endpoints), nil
}

// AwaitCluster returns once the cluster's generation is not g, wait has passed,
// or the service drains.
func (s *Service) AwaitCluster(ctx context.Context, name string, g int64, wait time.Duration) error {
	t, err := s.target(name)
	if err != nil {
		return err
	}
	s.metrics.watchers.WithLabelValues("longpoll").Inc()
	defer s.metrics.watchers.WithLabelValues("longpoll").Dec()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	t.channel.WaitForGeneration(waiting, g)
	return callerGone(ctx.Err())
}

func (s *Service) summarize(t *target) ClusterSummary {
	cc := t.clusterConfig()
	sum := t.channel.ClusterSummary(t.cluster)
	out := ClusterSummary{
		Name: t.cluster, State: sum.State.String(), PriorityInUse: sum.Priority,
		Source: cc.AssignmentFrom.Source.String(), Updated: updated(cc), Generation: t.channel.Generation(),
	}
	for _, c := range sum.Priorities {
		out.Endpoints.Ready += c.Ready
		out.Endpoints.Connecting += c.Connecting
		out.Endpoints.Idle += c.Idle
		out.Endpoints.TransientFailure += c.TransientFailure
		out.Endpoints.Ejected += c.Ejected
	}
	for _, a := range t.assignments() {
		total := 0
		for _, l := range a.Localities {
			total += len(l.Endpoints)
		}
		out.Endpoints.Total += total
		out.Endpoints.Unhealthy += total - a.Usable()
	}
	if l, ok := t.own(); ok {
		b := l.breaker()
		out.Breaker = &b
	}
	return out
}

// updated is when the newest of the cluster's resources became what it is.
func updated(cc *resource.ClusterConfig) time.Time {
	if cc.ClusterFrom.Updated.After(cc.AssignmentFrom.Updated) {
		return cc.ClusterFrom.Updated.UTC()
	}
	return cc.AssignmentFrom.Updated.UTC()
}
