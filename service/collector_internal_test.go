package service

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/ledger/ledgertest"
	"github.com/lbd-dev/lbd/service/picks"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// newService has no store: its tests say themselves what trees are built from.
func newService(t *testing.T) *Service {
	t.Helper()
	return newLimitedService(t, ledger.MaxClustersWithSeries)
}

// newLimitedService has series for so many clusters.
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

// TestNamesOfServersDoNotStopMetrics: names that a management server sends are
// judged by nobody. They spoil neither their own series nor those of others.
func TestNamesOfServersDoNotStopMetrics(t *testing.T) {
	s := newService(t)
	names := []resource.Locality{{Zone: "a\x00b"}, {Zone: "\xff"}, {Zone: "\xfe"}, {Region: "a/b", Zone: "c"}, {Region: "a", Zone: "b/c"}}
	for _, cluster := range []string{"a\x00b", "orders\xff", "z"} {
		a := ledgertest.Assignment(cluster, names...)
		a.Drops = []resource.Drop{{Category: "a\x00\xff"}}
		s.targets.Apply([]resolver.Change{{Target: resolver.Target(cluster), Config: ledgertest.Config(cluster, a)}})
		if err := s.targets.Settle(t.Context(), []string{resolver.Target(cluster)}); err != nil {
			t.Fatal(err)
		}
		for range 200 { // every locality, but for one chance in 10^19
			if err := s.Pick(t.Context(), &picks.Request{Cluster: cluster}, new(picks.Picks)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, want := range map[string]int{
		"lbd_locality_picks_total": 3 * 3, // two names come to the same, twice
		"lbd_drop_ratio":           3,
		"lbd_cluster_priority":     3,
	} {
		n, err := testutil.GatherAndCount(s.Registry(), name)
		if err != nil || n != want {
			t.Errorf("%s: %d series, %v; want %d", name, n, err, want)
		}
	}
	n, err := testutil.GatherAndCount(s.EndpointMetrics(t.Context()), "lbd_endpoint_state")
	if err != nil || n != 3*len(names) {
		t.Errorf("endpoints: %d series, %v; want %d", n, err, 3*len(names))
	}
}

// TestClustersBeyondTheLimitCountTogether: their sums stay when one of them goes.
func TestClustersBeyondTheLimitCountTogether(t *testing.T) {
	s := newLimitedService(t, 2)
	for _, cluster := range []string{ledger.OverflowCluster, "own", "own2", "b"} {
		s.targets.Apply([]resolver.Change{{Target: resolver.Target(cluster), Config: ledgertest.Config(cluster, ledgertest.Assignment(cluster, resource.Locality{Zone: cluster}))}})
		if err := s.targets.Settle(t.Context(), []string{resolver.Target(cluster)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Pick(t.Context(), &picks.Request{Cluster: cluster}, new(picks.Picks)); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(endpoints int) {
		t.Helper()
		want := fmt.Sprintf(`
# HELP lbd_endpoints Endpoints by priority and state.
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="_other",priority="0",state="ready",target=""} %d
lbd_endpoints{cluster="own",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="own2",priority="0",state="ready",target=""} 1
# HELP lbd_locality_picks_total Successful picks by priority and locality.
# TYPE lbd_locality_picks_total counter
lbd_locality_picks_total{cluster="own",locality="/own/",priority="0",target=""} 1
lbd_locality_picks_total{cluster="own2",locality="/own2/",priority="0",target=""} 1
# HELP lbd_picks_total Picks by result: ok, or the code of the refusal. Each pick counts once.
# TYPE lbd_picks_total counter
lbd_picks_total{cluster="_other",result="ok",target=""} 2
lbd_picks_total{cluster="own",result="ok",target=""} 1
lbd_picks_total{cluster="own2",result="ok",target=""} 1
`, endpoints)
		err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_endpoints", "lbd_locality_picks_total", "lbd_picks_total")
		if err != nil {
			t.Error(err)
		}
	}
	compare(2)
	s.targets.Apply([]resolver.Change{{Target: resolver.Target("b")}}).Close()
	compare(1)
}
