package service

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// EndpointMetricsUpTo is EndpointMetrics with a bound that tests can reach
// quickly.
func (s *Service) EndpointMetricsUpTo(ctx context.Context, most int) prometheus.Gatherer {
	return s.endpointMetrics(ctx, most)
}

// SetStale tells of a cluster's own tree that its source is away, or is not.
func (s *Service) SetStale(cluster string, stale bool) {
	s.targets.current.Load().clusters[cluster].newest.Load().only.stale.Store(stale)
}

// AwaitUnwatched returns once nothing runs for watchers.
func (s *Service) AwaitUnwatched() { s.watches.running.Wait() }
