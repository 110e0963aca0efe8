package service

import (
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestLeavesAreLetGo: a cluster's counters stay while a target comes down to it,
// and no longer.
func TestLeavesAreLetGo(t *testing.T) {
	s := newService(t)
	apply := func(cluster string, config *resource.Config) {
		t.Helper()
		s.targets.apply([]resolver.Change{{Target: resolver.Target(cluster), Config: config}}).close()
		if err := s.targets.settle(t.Context(), []string{resolver.Target(cluster)}); err != nil {
			t.Fatal(err)
		}
	}
	own := newConfig("a", newAssignment("a", resource.Locality{Zone: "a"}))
	all := func(leaves ...string) *resource.Config {
		config := newConfig("all", nil)
		for _, name := range leaves {
			config.Clusters[name] = newConfig(name, newAssignment(name, resource.Locality{Zone: name})).Clusters[name]
		}
		root := config.Clusters["all"]
		root.Cluster.Type, root.Leaves = resource.ClusterAggregate, leaves
		return config
	}
	for _, step := range []struct {
		cluster string
		config  *resource.Config
		want    int // clusters that are counted
	}{
		{"a", own, 1},
		{"a", own, 1},
		{"all", all("a", "b"), 2},
		{"all", all("b", "c"), 3},
		{"a", nil, 2},
		{"all", all("c"), 1},
		{"all", nil, 0},
	} {
		apply(step.cluster, step.config)
		if n := len(s.targets.counted); n != step.want {
			t.Errorf("%s: %d clusters are counted, want %d", step.cluster, n, step.want)
		}
	}
	if n := len(s.targets.clusters) + s.targets.withSeries + s.targets.sharing; n != 0 {
		t.Errorf("clusters %v are counted, %d accounts and %d clusters have series", s.targets.clusters, s.targets.withSeries, s.targets.sharing)
	}
	for _, name := range []string{"a", "b", "c", "all"} {
		if c := s.counters.Get(policy.ServiceKey{Cluster: name}); c != nil {
			t.Errorf("counters of %s are held", name)
		}
	}
}
