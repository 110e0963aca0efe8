package service_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/sources"
)

func TestEndpointMetrics(t *testing.T) {
	s, _ := start(t, "", nil)
	push(t, s, sources.Endpoints, "a", assignment(t, nil,
		place{"x", 0, 3, append(endpoints("x", 1), object{
			"health_status": "DRAINING", "load_balancing_weight": 7, "endpoint": endpoint("gone")["endpoint"],
		})},
		place{"y", 0, 1, endpoints("y", 2)},
		place{"x", 1, 1, endpoints("spare", 1)}))
	push(t, s, sources.Endpoints, "b/c", assignment(t, nil, place{"", 0, 1, endpoints("b", 1)}))
	push(t, s, sources.Config, "homeless", config(t, 1))
	const want = `
# HELP lbd_endpoint_series_truncated 1 if endpoints are missing because there are more than 100000 or a cluster did not answer in time, else 0.
# TYPE lbd_endpoint_series_truncated gauge
lbd_endpoint_series_truncated 0
# HELP lbd_endpoint_share Ratio of the cluster's picks that the endpoint gets now, 0 to 1.
# TYPE lbd_endpoint_share gauge
lbd_endpoint_share{address="b-0:80",cluster="b/c",locality="//",priority="0",target=""} 1
lbd_endpoint_share{address="gone:80",cluster="a",locality="/x/",priority="0",target=""} 0
lbd_endpoint_share{address="spare-0:80",cluster="a",locality="/x/",priority="1",target=""} 0
lbd_endpoint_share{address="x-0:80",cluster="a",locality="/x/",priority="0",target=""} 0.75
lbd_endpoint_share{address="y-0:80",cluster="a",locality="/y/",priority="0",target=""} 0.125
lbd_endpoint_share{address="y-1:80",cluster="a",locality="/y/",priority="0",target=""} 0.125
# HELP lbd_endpoint_state 1 for the current state of the endpoint: ready, connecting, idle, transient_failure, unhealthy or ejected. Other states have no series.
# TYPE lbd_endpoint_state gauge
lbd_endpoint_state{address="b-0:80",cluster="b/c",locality="//",priority="0",state="ready",target=""} 1
lbd_endpoint_state{address="gone:80",cluster="a",locality="/x/",priority="0",state="unhealthy",target=""} 1
lbd_endpoint_state{address="spare-0:80",cluster="a",locality="/x/",priority="1",state="idle",target=""} 1
lbd_endpoint_state{address="x-0:80",cluster="a",locality="/x/",priority="0",state="ready",target=""} 1
lbd_endpoint_state{address="y-0:80",cluster="a",locality="/y/",priority="0",state="ready",target=""} 1
lbd_endpoint_state{address="y-1:80",cluster="a",locality="/y/",priority="0",state="ready",target=""} 1
# HELP lbd_endpoint_weight Configured weight of the endpoint.
# TYPE lbd_endpoint_weight gauge
lbd_endpoint_weight{address="b-0:80",cluster="b/c",locality="//",priority="0",target=""} 1
lbd_endpoint_weight{address="gone:80",cluster="a",locality="/x/",priority="0",target=""} 7
lbd_endpoint_weight{address="spare-0:80",cluster="a",locality="/x/",priority="1",target=""} 1
lbd_endpoint_weight{address="x-0:80",cluster="a",locality="/x/",priority="0",target=""} 1
lbd_endpoint_weight{address="y-0:80",cluster="a",locality="/y/",priority="0",target=""} 1
lbd_endpoint_weight{address="y-1:80",cluster="a",locality="/y/",priority="0",target=""} 1
`
	if err := testutil.GatherAndCompare(s.EndpointMetrics(t.Context()), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(s.EndpointMetrics(t.Context())); err != nil || len(problems) > 0 {
		t.Errorf("lint: %+v, %v", problems, err)
	}
	all, err := s.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if strings.HasPrefix(f.GetName(), "lbd_endpoint_") {
			t.Errorf("%s is among the metrics of everybody", f.GetName())
		}
	}
}

// gathered sums the values of each family.
func gathered(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetGauge().GetValue()
		}
	}
	return sums
}

// stuck is a logger's handler that waits when something is told of a cluster.
type stuck struct {
	slog.Handler
	cluster string
	until   chan struct{}
}

func (stuck) Enabled(context.Context, slog.Level) bool { return true }

func (h stuck) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "cluster" && a.Value.String() == h.cluster && r.Message == "cluster state changed" {
			<-h.until
		}
		return true
	})
	return nil
}

// A tree that does not answer is waited for a second, and the others are there.
func TestEndpointMetricsWaitForNoTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		s, stop := start(t, "", func(o *service.Options) {
			o.Logger = slog.New(stuck{Handler: slog.DiscardHandler, cluster: "b", until: until})
		})
		push(t, s, sources.Endpoints, "a", assignment(t, nil, place{"x", 0, 1, endpoints("x", 2)}))
		push(t, s, sources.Endpoints, "c", assignment(t, nil, place{"x", 0, 1, endpoints("x", 3)}))
		pushed := make(chan struct{})
		go func() {
			defer close(pushed)
			push(t, s, sources.Endpoints, "b", assignment(t, nil, place{"x", 0, 1, endpoints("x", 4)}))
		}()
		synctest.Wait()
		began := time.Now()
		got := gathered(t, s.EndpointMetrics(t.Context()))
		if took := time.Since(began); took != time.Second || got["lbd_endpoint_state"] != 5 || got["lbd_endpoint_series_truncated"] != 1 {
			t.Errorf("after %v: %v", took, got)
		}
		left, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		if got := gathered(t, s.EndpointMetrics(left)); time.Since(began) != 0 || got["lbd_endpoint_series_truncated"] != 1 {
			t.Errorf("the caller is gone; after %v: %v", time.Since(began), got)
		}
		close(until)
		<-pushed
		if got := gathered(t, s.EndpointMetrics(t.Context())); got["lbd_endpoint_state"] != 9 || got["lbd_endpoint_series_truncated"] != 0 {
			t.Errorf("once it answers: %v", got)
		}
		stop()
	})
}
