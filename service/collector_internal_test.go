package service

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestNamesOfServersDoNotStopMetrics: names that a management server sends are
// judged by nobody. They spoil neither their own series nor those of others.
func TestNamesOfServersDoNotStopMetrics(t *testing.T) {
	s := New(Options{
		Logger:     slog.New(slog.DiscardHandler),
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
	})
	defer s.Close()
	names := []resource.Locality{{Zone: "a\x00b"}, {Zone: "\xff"}, {Zone: "\xfe"}, {Region: "a/b", Zone: "c"}, {Region: "a", Zone: "b/c"}}
	for _, cluster := range []string{"a\x00b", "orders\xff", "z"} {
		a := &resource.Assignment{Name: cluster, Drops: []resource.Drop{{Category: "a\x00\xff"}}}
		for i, name := range names {
			e := &resource.Endpoint{Addresses: []string{string(rune('a' + i))}, Weight: 1, Locality: name}
			a.Localities = append(a.Localities, &resource.LocalityEndpoints{ID: name, Weight: 1, Endpoints: []*resource.Endpoint{e}})
		}
		s.targets.apply([]resolver.Change{{Cluster: cluster, Config: &resource.Config{
			Roots: []string{cluster},
			Clusters: map[string]*resource.ClusterConfig{
				cluster: {Cluster: resource.DefaultCluster(cluster), Assignment: a},
			},
		}}})
		if err := s.targets.settle(t.Context()); err != nil {
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
