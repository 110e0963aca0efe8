package observe

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// MaxEndpointsWithSeries is the maximum number of endpoints with series.
const MaxEndpointsWithSeries = 100_000

// endpointsTimeout is the limit on waiting for one tree. Prometheus's default timeout of
// a scrape is 10 s.
const endpointsTimeout = time.Second

// The series of an endpoint. There are many endpoints, so the states that an endpoint
// is not in have no series.
var (
	endpointStateFamily = Gauge("lbd_endpoint_state",
		"1 for the current state of the endpoint: ready, connecting, idle, transient_failure, unhealthy or ejected. Other states have no series.",
		"cluster", "target", "priority", "locality", "address", "state")
	endpointShareFamily = Gauge("lbd_endpoint_share",
		"Ratio of the cluster's picks that the endpoint gets now, 0 to 1.",
		"cluster", "target", "priority", "locality", "address")
	endpointWeightFamily = Gauge("lbd_endpoint_weight",
		"Configured weight of the endpoint.",
		"cluster", "target", "priority", "locality", "address")
	endpointsTruncatedFamily = Gauge("lbd_endpoint_series_truncated",
		"1 if endpoints are missing because there are more than 100000 or a cluster did not answer in time, else 0.")
)

// EndpointMetrics returns the current series of the endpoints in a scope: of the first
// MaxEndpointsWithSeries, in the order of cluster names, then of xds targets.
// lbd_endpoint_series_truncated is 1 if some are left out because there are more, a tree
// does not answer in time, or ctx ends.
func (m *Metrics) EndpointMetrics(ctx context.Context, in *ledger.Scope) prometheus.Gatherer {
	e := m.state.endpointSeries(ctx, in, m.maxEndpoints)
	e.add(endpointsTruncatedFamily, Flag(e.truncated))
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return sorted(e.families), nil })
}

// endpointSeries are the series of one scrape.
type endpointSeries struct {
	*gathering

	left      int // endpoints that may have series
	truncated bool
}

// endpointSeries returns the series of at most limit endpoints in a scope.
func (s *State) endpointSeries(ctx context.Context, in *ledger.Scope, limit int) *endpointSeries {
	e := &endpointSeries{gathering: newGathering(), left: limit}
	for _, t := range s.ledger.Hosted().Sorted() {
		if !in.Target(t.Label) || t.Channel.Warming() { // a scrape builds no tree
			continue
		}
		members := slices.DeleteFunc(t.View().Sorted(), func(m *ledger.Cluster) bool { return !in.Cluster(m.Name) || countEndpoints(m) == 0 })
		if len(members) == 0 {
			continue
		}
		if e.left == 0 {
			e.truncated = true
			break
		}
		within, cancel := context.WithTimeout(ctx, endpointsTimeout)
		root, err := t.Channel.Describe(within)
		cancel()
		if err != nil {
			e.truncated = e.truncated || !errors.Is(err, lb.ErrClosed) // else it was removed meanwhile
			continue
		}
		for _, m := range members {
			e.cluster(s.describe(m, root.Clusters[m.Name], true))
		}
	}
	return e
}

func (e *endpointSeries) cluster(c *ClusterState) {
	for _, p := range c.Priorities {
		for _, l := range p.Localities {
			for i := range l.Endpoints {
				if e.left == 0 {
					e.truncated = true
					return
				}
				e.left--
				endpoint := &l.Endpoints[i]
				labels := []string{c.Name, c.Target, strconv.Itoa(p.Priority), resource.Locality(l.Locality).String(), endpoint.Address}
				e.add(endpointWeightFamily, float64(endpoint.Weight), labels...)
				e.add(endpointStateFamily, 1, append(labels, strings.ToLower(endpoint.State))...)
				if endpoint.Share != nil {
					e.add(endpointShareFamily, *endpoint.Share, labels...)
				}
			}
		}
	}
}
