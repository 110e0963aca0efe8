package clusterimpl_test

import (
	"fmt"
	"testing"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

func localities(zones ...string) func(*policy.ClusterImplConfig) {
	return func(c *policy.ClusterImplConfig) {
		c.Localities = nil
		for _, z := range zones {
			c.Localities = append(c.Localities, &resource.LocalityEndpoints{ID: resource.Locality{Zone: z}})
		}
	}
}

// TestCountsOfNamesThatGo: the counts of categories and localities stay while the
// config names them, and do not grow in number with configs that name others.
func TestCountsOfNamesThatGo(t *testing.T) {
	all := policy.NewCounters()
	counters := all.Acquire(service) // they outlive the tree
	defer counters.Release()
	kept := func() (categories, zones int) { return len(counters.Drops()), len(counters.Loads()) }
	stay := func(tree string) bool {
		_, category := counters.Drops()[tree]
		_, locality := counters.Loads()[resource.Locality{Zone: tree}]
		return category && locality
	}
	named := func(names ...string) []func(*policy.ClusterImplConfig) {
		var categories []resource.Drop
		for _, n := range names {
			categories = append(categories, resource.Drop{Category: n})
		}
		return []func(*policy.ClusterImplConfig){drops(categories...), localities(names...)}
	}

	one, other := newTree(t, all, named("both")...), newTree(t, all, named("both")...)
	for i := range 100 {
		one.Config(config(named("one", fmt.Sprint(i))...))
		one.Config(config(named("one", fmt.Sprint(i))...)) // names no more than once
		if i == 0 && !stay("both") {
			t.Fatal("what another tree names is gone")
		}
	}
	// Two that are named, one of the other tree, and those that were last.
	if c, z := kept(); c > 20 || z > 20 {
		t.Errorf("%d categories and %d localities are kept", c, z)
	}
	if !stay("both") || !stay("one") || !stay("99") {
		t.Errorf("what is named is gone: %v, %v", counters.Drops(), counters.Loads())
	}

	// A tree that goes, to another service or for good, names nothing.
	one.Config(config(append(named("one"), func(c *policy.ClusterImplConfig) { c.Service.EDSServiceName = "x" })...))
	other.Close()
	third := newTree(t, all)
	for i := range 100 {
		third.Config(config(named(fmt.Sprint("third", i))...))
	}
	if stay("both") || stay("one") {
		t.Error("a metric that is no longer named is kept")
	}
}

// TestLoadsOfUpstreams: the metrics that an upstream reports at the end of a pick
// count as the config of the cluster says, the newest for all.
func TestLoadsOfUpstreams(t *testing.T) {
	all := policy.NewCounters()
	reader := all.ReadLoad(service)
	defer reader.Close()
	tree := up(newTree(t, all))
	report := balancer.DoneInfo{ServerLoad: &orcav3.OrcaLoadReport{CpuUtilization: 0.5, NamedMetrics: map[string]float64{"q": 2}}}
	picks := func() map[string]resource.MetricLoad {
		t.Helper()
		for _, held := range []bool{true, true, false} {
			call := &policy.Call{Hold: held}
			if _, err := tree.Pick(call); err != nil {
				t.Fatal(err)
			}
			call.Held().Finish(policy.OutcomeSuccess, report)
		}
		l := reader.Read()
		reader.Acknowledge()
		if len(l.Localities) != 1 || l.Localities[0].Locality != zone || l.Localities[0].Succeeded != 3 {
			t.Fatalf("load %+v", l)
		}
		return l.Localities[0].Metrics
	}
	if got := picks(); got != nil {
		t.Errorf("metrics %v without being asked for", got)
	}
	tree.Config(config(func(c *policy.ClusterImplConfig) { c.LoadMetrics = &resource.LoadMetrics{CPUUtilization: true} }))
	if got := picks(); len(got) != 1 || got["cpu_utilization"] != (resource.MetricLoad{Requests: 2, Total: 1}) {
		t.Errorf("metrics %v", got)
	}
	tree.Config(config(func(c *policy.ClusterImplConfig) { c.LoadMetrics = &resource.LoadMetrics{Named: []string{"q"}} }))
	if got := picks(); len(got) != 1 || got["named_metrics.q"] != (resource.MetricLoad{Requests: 2, Total: 4}) {
		t.Errorf("metrics %v", got)
	}
	tree.Config(config())
	if got := picks(); got != nil {
		t.Errorf("metrics %v, which are no longer configured", got)
	}
}
