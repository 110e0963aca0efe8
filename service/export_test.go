package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/history"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
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

// SetAmbientError makes a resource of a cluster's own tree one that is in use in spite of
// an error.
func (s *Service) SetAmbientError(cluster string, key resource.Key, err error) {
	errors := newAmbientErrors([]resolver.AmbientError{{Key: key, Err: err}})
	s.targets.current.Load().clusters[cluster].newest.Load().only.ambient.Store(errors)
}

// AwaitUnwatched returns once nothing runs for watchers.
func (s *Service) AwaitUnwatched() { s.watches.running.Wait() }

// RecordHistory records a step of all clusters in a store of the test.
func (s *Service) RecordHistory(store *history.Store, now time.Time) {
	store.Record(now, s.targets.current.Load().record)
}

// Settle returns once all trees have their newest config.
func (s *Service) Settle(ctx context.Context) error {
	var names []string
	for _, t := range s.targets.current.Load().all() {
		names = append(names, t.name)
	}
	return s.targets.settle(ctx, names)
}
