package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	dto "github.com/prometheus/client_model/go"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
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

// endpointBytes is about what it takes to describe an endpoint.
const endpointBytes = 512

// EndpointMetrics returns the current series of the endpoints in a scope: of the first
// MaxEndpointsWithSeries, in the order of cluster names, then of xds targets.
// lbd_endpoint_series_truncated is 1 if some are left out because there are more, a tree
// does not answer in time, or ctx ends. Err is set if the memory for them is not left.
func (m *Metrics) EndpointMetrics(ctx context.Context, in *ledger.Scope) *Gathered {
	e := &endpointSeries{left: m.maxEndpoints}
	err := e.gather(ctx, m.state, in)
	return &Gathered{Bytes: e.bytes, Parts: e.parts, Err: err}
}

// endpointSeries are the endpoints of one scrape, of which series are made as they are written: those take many times
// as much memory.
type endpointSeries struct {
	of        []localitySeries
	bytes     int
	left      int // endpoints that may have series
	truncated bool
}

type localitySeries struct {
	cluster, target string
	priority        int
	locality        Locality
	endpoints       []seriesOfEndpoint
}

type seriesOfEndpoint struct {
	address, state string
	weight         uint32
	share          float64 // negative if it is not known
}

// gather adds the endpoints in a scope.
func (e *endpointSeries) gather(ctx context.Context, s *State, in *ledger.Scope) error {
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
		if err := e.add(ctx, s, t, members); err != nil {
			return err
		}
	}
	return nil
}

// add adds clusters of a target.
func (e *endpointSeries) add(ctx context.Context, s *State, t *ledger.Target, members []*ledger.Cluster) error {
	within, cancel := context.WithTimeout(ctx, endpointsTimeout)
	defer cancel()
	for _, m := range members {
		if e.left == 0 {
			e.truncated = true
			return nil
		}
		if err := overload.Reserve(ctx, countEndpoints(m)*endpointBytes); err != nil {
			return fmt.Errorf("describe the endpoints: %w", err)
		}
		root, err := t.Channel.DescribeCluster(within, m.Name)
		if err != nil {
			e.truncated = e.truncated || !errors.Is(err, lb.ErrClosed) // else it was removed meanwhile
			return nil
		}
		e.cluster(s.describe(m, root, true))
	}
	return nil
}

func (e *endpointSeries) cluster(c *ClusterState) {
	for _, p := range c.Priorities {
		for _, l := range p.Localities {
			n := min(e.left, len(l.Endpoints))
			e.left -= n
			e.truncated = e.truncated || n < len(l.Endpoints)
			of := localitySeries{c.Name, c.Target, p.Priority, l.Locality, make([]seriesOfEndpoint, n)}
			e.bytes += int(unsafe.Sizeof(of)) + len(l.Locality.Region) + len(l.Locality.Zone) + len(l.Locality.SubZone)
			for i := range of.endpoints {
				endpoint, share := &l.Endpoints[i], -1.0
				if endpoint.Share != nil {
					share = *endpoint.Share
				}
				of.endpoints[i] = seriesOfEndpoint{endpoint.Address, endpoint.State, endpoint.Weight, share}
				e.bytes += int(unsafe.Sizeof(of.endpoints[i])) + len(endpoint.Address)
			}
			e.of = append(e.of, of)
		}
	}
}

// parts yields the families, in the order of their names, in parts.
func (e *endpointSeries) parts(yield func(*dto.MetricFamily) bool) {
	g := newGathering()
	flush := func() bool {
		families := g.families
		g = newGathering()
		return len(families) == 0 || yield(families[0])
	}
	g.add(endpointsTruncatedFamily, Flag(e.truncated))
	for _, f := range []*Family{endpointShareFamily, endpointStateFamily, endpointWeightFamily} {
		if !flush() {
			return
		}
		for i, n := 0, 0; i < len(e.of); i++ {
			l := &e.of[i]
			labels := []string{l.cluster, l.target, strconv.Itoa(l.priority), resource.Locality(l.locality).String(), "", ""}
			for j := range l.endpoints {
				endpoint := &l.endpoints[j]
				labels[4], labels[5] = endpoint.address, strings.ToLower(endpoint.state)
				switch {
				case f == endpointStateFamily:
					g.add(f, 1, labels...)
				case f == endpointWeightFamily:
					g.add(f, float64(endpoint.weight), labels...)
				case endpoint.share >= 0:
					g.add(f, endpoint.share, labels...)
				}
				if n++; n%partSeries == 0 && !flush() {
					return
				}
			}
		}
	}
	flush()
}
