package observe

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// MaxEndpointsWithSeries is how many endpoints have series of their own.
const MaxEndpointsWithSeries = 100_000

// endpointsTimeout is how long the series of a cluster's endpoints wait for its
// tree. A scrape has ten seconds where nobody set it otherwise.
const endpointsTimeout = time.Second

// The series of an endpoint. Its state has one series, not one for each state
// that it is not in: there are many endpoints, and sums over state are the same.
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

// EndpointMetrics returns the series of endpoints as they are now, in a registry
// apart: of the first MaxEndpointsWithSeries, by the names of their clusters,
// then of those of xds targets. What is left out, because there are more, a tree
// does not answer in time or ctx ends, is told by lbd_endpoint_series_truncated.
func (m *Metrics) EndpointMetrics(ctx context.Context) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.state.endpointSeries(ctx, m.maxEndpoints))
	return registry
}

// endpointSeries are the series of one scrape.
type endpointSeries []prometheus.Metric

// Describe sends nothing: which series there are depends on the endpoints.
func (endpointSeries) Describe(chan<- *prometheus.Desc) {}

// Collect sends the series.
func (e endpointSeries) Collect(out chan<- prometheus.Metric) {
	for _, m := range e {
		out <- m
	}
}

// endpointSeries builds the series of at most so many endpoints.
func (s *State) endpointSeries(ctx context.Context, most int) endpointSeries {
	var all endpointSeries
	left, truncated := most, false
	for _, t := range s.ledger.Hosted().Sorted() {
		members := slices.DeleteFunc(t.View().Sorted(), func(m *ledger.Cluster) bool { return !hasEndpoints(m) })
		if len(members) == 0 {
			continue
		}
		if left == 0 {
			truncated = true
			break
		}
		root, err := describeWithin(ctx, t, endpointsTimeout)
		if errors.Is(err, lb.ErrClosed) {
			continue // it was removed meanwhile
		}
		if err != nil {
			truncated = true
			continue
		}
		for _, m := range members {
			var complete bool
			if all, left, complete = appendSeries(all, s.describe(m, root.Clusters[m.Name], true), left); !complete {
				truncated = true
			}
		}
	}
	return append(all, endpointsTruncatedFamily.Metric(Flag(truncated)))
}

// hasEndpoints reports whether the cluster, or a leaf of it, has any.
func hasEndpoints(m *ledger.Cluster) bool {
	for _, l := range m.Localities() {
		if len(l.Endpoints) > 0 {
			return true
		}
	}
	return false
}

func describeWithin(ctx context.Context, t *ledger.Target, timeout time.Duration) (policy.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return t.Channel.Describe(ctx)
}

// appendSeries adds the series of a cluster's endpoints, as far as there is room
// for left more endpoints.
func appendSeries(all endpointSeries, c *ClusterState, left int) (_ endpointSeries, stillLeft int, complete bool) {
	add := func(f *Family, v float64, labels ...string) { all = append(all, f.Metric(v, labels...)) }
	for _, p := range c.Priorities {
		priority := strconv.Itoa(p.Priority)
		for _, l := range p.Localities {
			locality := resource.Locality(l.Locality).String()
			for i := range l.Endpoints {
				if left == 0 {
					return all, 0, false
				}
				left--
				e := &l.Endpoints[i]
				add(endpointStateFamily, 1, c.Name, c.Target, priority, locality, e.Address, strings.ToLower(e.State))
				if e.Share != nil {
					add(endpointShareFamily, *e.Share, c.Name, c.Target, priority, locality, e.Address)
				}
				add(endpointWeightFamily, float64(e.Weight), c.Name, c.Target, priority, locality, e.Address)
			}
		}
	}
	return all, left, true
}
