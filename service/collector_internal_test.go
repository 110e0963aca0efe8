package service

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// newService has no store: its tests say themselves what trees are built from.
func newService(t *testing.T) *Service {
	t.Helper()
	s := New(Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
	})
	t.Cleanup(s.Close)
	return s
}

func newConfig(cluster string, a *resource.Assignment) *resource.Config {
	return &resource.Config{
		Roots:    []string{cluster},
		Clusters: map[string]*resource.ClusterConfig{cluster: {Cluster: resource.DefaultCluster(cluster), Assignment: a}},
	}
}

// newAssignment has an endpoint in each locality.
func newAssignment(cluster string, ids ...resource.Locality) *resource.Assignment {
	a := &resource.Assignment{Name: cluster}
	for i, id := range ids {
		e := &resource.Endpoint{Addresses: []string{string(rune('a' + i))}, Weight: 1, Locality: id}
		a.Localities = append(a.Localities, &resource.LocalityEndpoints{ID: id, Weight: 1, Endpoints: []*resource.Endpoint{e}})
	}
	return a
}

// TestNamesOfServersDoNotStopMetrics: names that a management server sends are
// judged by nobody. They spoil neither their own series nor those of others.
func TestNamesOfServersDoNotStopMetrics(t *testing.T) {
	s := newService(t)
	names := []resource.Locality{{Zone: "a\x00b"}, {Zone: "\xff"}, {Zone: "\xfe"}, {Region: "a/b", Zone: "c"}, {Region: "a", Zone: "b/c"}}
	for _, cluster := range []string{"a\x00b", "orders\xff", "z"} {
		a := newAssignment(cluster, names...)
		a.Drops = []resource.Drop{{Category: "a\x00\xff"}}
		s.targets.apply([]resolver.Change{{Target: resolver.Target(cluster), Config: newConfig(cluster, a)}})
		if err := s.targets.settle(t.Context(), []string{resolver.Target(cluster)}); err != nil {
			t.Fatal(err)
		}
		for range 200 { // every locality, but for one chance in 10^19
			if err := s.Pick(t.Context(), &PickRequest{Cluster: cluster}, new(Picks)); err != nil {
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
	s := newService(t)
	s.targets.maxSeries = 2
	for _, cluster := range []string{OverflowCluster, "own", "own2", "b"} {
		s.targets.apply([]resolver.Change{{Target: resolver.Target(cluster), Config: newConfig(cluster, newAssignment(cluster, resource.Locality{Zone: cluster}))}})
		if err := s.targets.settle(t.Context(), []string{resolver.Target(cluster)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Pick(t.Context(), &PickRequest{Cluster: cluster}, new(Picks)); err != nil {
			t.Fatal(err)
		}
	}
	compare := func(endpoints int) {
		t.Helper()
		want := fmt.Sprintf(`
# HELP lbd_endpoints How many endpoints are in each state?
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="_other",priority="0",state="ready",target=""} %d
lbd_endpoints{cluster="own",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="own2",priority="0",state="ready",target=""} 1
# HELP lbd_locality_picks_total Where do good picks go?
# TYPE lbd_locality_picks_total counter
lbd_locality_picks_total{cluster="own",locality="/own/",priority="0",target=""} 1
lbd_locality_picks_total{cluster="own2",locality="/own2/",priority="0",target=""} 1
# HELP lbd_picks_total What happened to every pick, each once? By result: ok, or the code of its refusal.
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
	s.targets.apply([]resolver.Change{{Target: resolver.Target("b")}}).close()
	compare(1)
}

// TestPlacesOfAnAggregate: its priorities are those of its leaves in a row, each
// leaf one at least.
func TestPlacesOfAnAggregate(t *testing.T) {
	two := newAssignment("b", resource.Locality{Zone: "b0"}, resource.Locality{Zone: "b1"})
	two.Localities[1].Priority = 1
	config := &resource.Config{Clusters: map[string]*resource.ClusterConfig{
		"all": {Leaves: []string{"empty", "b", "c"}}, "empty": {},
		"b": {Assignment: two}, "c": {Assignment: newAssignment("c", resource.Locality{Zone: "c0"})},
	}}
	var got []string
	for priority, l := range localities(config, "all") {
		got = append(got, fmt.Sprint(priority, " ", l.ID.Zone))
	}
	if want := "[1 b0 2 b1 3 c0]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
