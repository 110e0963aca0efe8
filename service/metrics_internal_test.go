package service

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

// newLimitedService returns a service without a store, with series for so many clusters.
func newLimitedService(t *testing.T, maxSeries int) *Service {
	t.Helper()
	s := New(Options{
		maxSeries:  maxSeries,
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
	})
	t.Cleanup(s.Close)
	return s
}

// apply gives a target a config, and waits until its tree has it.
func apply(t *testing.T, s *Service, target string, config *resource.Config) {
	t.Helper()
	s.targets.Apply([]resolver.TargetConfig{{Target: target, Config: config}})
	noError(t, s.targets.Settle(t.Context(), []string{target}))
}

// TestNamesOfServersDoNotStopMetrics: names that a management server sends are not
// validated, and do not suppress the series of others.
func TestNamesOfServersDoNotStopMetrics(t *testing.T) {
	s := newLimitedService(t, ledger.MaxClustersWithSeries)
	names := []resource.Locality{{Zone: "a\x00b"}, {Zone: "\xff"}, {Zone: "\xfe"}, {Region: "a/b", Zone: "c"}, {Region: "a", Zone: "b/c"}}
	for _, cluster := range []string{"a\x00b", "orders\xff", "z"} {
		a := ledgertest.Assignment(cluster, names...)
		a.Drops = []resource.Drop{{Category: "a\x00\xff"}}
		apply(t, s, resolver.Target(cluster), ledgertest.Config(cluster, a))
		for range 200 { // every locality, but for one chance in 10^19
			noError(t, s.Picks.Pick(t.Context(), &picks.Request{Cluster: cluster}, new(picks.Picks)))
		}
	}
	for name, want := range map[string]int{
		"lbd_locality_picks_total": 3 * 3, // two names come to the same, twice
		"lbd_drop_ratio":           3,
		"lbd_cluster_priority":     3,
	} {
		n, err := testutil.GatherAndCount(s.Metrics, name)
		if err != nil || n != want {
			t.Errorf("%s: %d series, %v; want %d", name, n, err, want)
		}
	}
	n, err := testutil.GatherAndCount(s.Metrics.EndpointMetrics(t.Context(), nil), "lbd_endpoint_state")
	if err != nil || n != 3*len(names) {
		t.Errorf("endpoints: %d series, %v; want %d", n, err, 3*len(names))
	}
}

// TestClustersBeyondTheLimitCountTogether: their sums stay when one of them goes.
func TestClustersBeyondTheLimitCountTogether(t *testing.T) {
	s := newLimitedService(t, 2)
	for _, cluster := range []string{ledger.OverflowCluster, "own", "own2", "b"} {
		apply(t, s, resolver.Target(cluster), ledgertest.Config(cluster, ledgertest.Assignment(cluster, resource.Locality{Zone: cluster})))
		noError(t, s.Picks.Pick(t.Context(), &picks.Request{Cluster: cluster}, new(picks.Picks)))
	}
	compare := func(endpoints int) {
		t.Helper()
		want := fmt.Sprintf(`
lbd_endpoints{cluster="_other",priority="0",state="ready",target=""} %d
lbd_endpoints{cluster="own",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="own2",priority="0",state="ready",target=""} 1
lbd_locality_picks_total{cluster="own",locality="/own/",priority="0",target=""} 1
lbd_locality_picks_total{cluster="own2",locality="/own2/",priority="0",target=""} 1
lbd_picks_total{cluster="_other",result="ok",target=""} 2
lbd_picks_total{cluster="own",result="ok",target=""} 1
lbd_picks_total{cluster="own2",result="ok",target=""} 1
`, endpoints)
		CompareSeries(t, s.Metrics, want)
	}
	compare(2)
	s.targets.Apply([]resolver.TargetConfig{{Target: resolver.Target("b")}}).Close()
	compare(1)
}

// TestALeafThatPicksReachThroughItsAggregateOnly: its breaker and drops have series of
// their own, and its connections count for the aggregate. If picks reach it by itself as
// well, both are counted separately.
func TestALeafThatPicksReachThroughItsAggregateOnly(t *testing.T) {
	s := newLimitedService(t, ledger.MaxClustersWithSeries)
	leaf := ledgertest.Usable("leaf")
	for name, own := range map[string]bool{"xds:///one": false, "xds:///two": true} {
		config := ledgertest.Routed(name)
		ledgertest.Aggregated(config, "agg", leaf)
		config.Routing.VirtualHost.Routes[0].Clusters = []resource.WeightedCluster{{Name: "agg", Weight: 1}}
		if own {
			config.Roots = append(config.Roots, "leaf")
		}
		apply(t, s, name, config)
		want := `
lbd_circuit_breaker_in_flight{cluster="leaf"} 0
lbd_connect_attempts_total{cluster="agg",result="ok",target="` + name + `"} 1`
		if own {
			want += `
lbd_connect_attempts_total{cluster="leaf",result="ok",target="` + name + `"} 1`
		}
		CompareSeries(t, s.Metrics, want)
		s.targets.Apply([]resolver.TargetConfig{{Target: name}}).Close()
	}
}

// TestAccountsBeyondTheLimit: pairs of cluster and target are what is counted, and
// picks that reached no cluster are a pair as well.
func TestAccountsBeyondTheLimit(t *testing.T) {
	s := newLimitedService(t, 3)
	a := ledgertest.Usable("a")
	for _, name := range []string{"xds:///one", "xds:///two"} {
		apply(t, s, name, ledgertest.Routed(name, a))
		noError(t, s.Picks.Pick(t.Context(), &picks.Request{Target: name, Path: "/"}, new(picks.Picks)))
		if err := s.Picks.Pick(t.Context(), &picks.Request{Target: name}, new(picks.Picks)); err == nil {
			t.Fatal("an empty path was routed")
		}
	}
	want := `
lbd_circuit_breaker_max_requests{cluster="a"} 1024
lbd_endpoints{cluster="_other",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="a",priority="0",state="ready",target="xds:///one"} 1
lbd_picks_total{cluster="",result="no_route",target="xds:///one"} 1
lbd_picks_total{cluster="",result="no_route",target="xds:///two"} 1
lbd_picks_total{cluster="_other",result="ok",target=""} 1
lbd_picks_total{cluster="a",result="ok",target="xds:///one"} 1
`
	CompareSeries(t, s.Metrics, want)
}
