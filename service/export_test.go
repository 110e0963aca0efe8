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
