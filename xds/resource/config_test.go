package resource_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestLeavesOfACluster(t *testing.T) {
	cluster := func(name string, leaves ...string) *resource.ClusterConfig {
		return &resource.ClusterConfig{Cluster: resource.DefaultCluster(name), Leaves: leaves}
	}
	bad := cluster("bad", "b") // as far as its graph was read
	bad.Err = errors.New("too deep")
	config := &resource.Config{Clusters: few.Of(map[string]*resource.ClusterConfig{
		"all": cluster("all", "b", "a"), "a": cluster("a"), "b": cluster("b"), "bad": bad,
	})}
	for name, want := range map[string][]string{"a": {"a"}, "all": {"b", "a"}, "bad": nil, "unknown": nil} {
		var got []string
		for _, cc := range config.Leaves(name) {
			got = append(got, cc.Cluster.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s comes down to %q, want %q", name, got, want)
		}
	}
	var first []string
	for _, cc := range config.Leaves("all") {
		if first = append(first, cc.Cluster.Name); len(first) == 1 {
			break
		}
	}
	if !slices.Equal(first, []string{"b"}) {
		t.Errorf("the first alone: %q", first)
	}
}
