package clusterimpl_test

import (
	"fmt"
	"testing"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/clusterimpl"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
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

// TestJudged: every pick that draws against the drop categories is judged once, and
// no other.
func TestJudged(t *testing.T) {
	half := func(c *policy.ClusterImplConfig) {
		c.Drops, c.MaxRequests = []resource.Drop{{Category: "half", PerMillion: 500_000}}, 1
	}
	tests := []struct {
		name   string
		before func(*lbtest.Tree)
		call   *policy.Call
		draw   uint64
		want   uint64
	}{
		{"answered", nil, &policy.Call{}, never, 1},
		{"held", nil, &policy.Call{Hold: true}, never, 1},
		{"dropped", nil, &policy.Call{}, always, 1},
		{"refused by the breaker", func(tree *lbtest.Tree) { tree.Counters.Get(service).Hold(1) }, &policy.Call{}, never, 1},
		{"all excluded", nil, &policy.Call{Exclude: []string{"a", "b"}}, never, 1},
		{"lost since", func(tree *lbtest.Tree) {
			tree.SubConns[0].State, tree.SubConns[1].State = connecting, connecting
		}, &policy.Call{}, never, 1},
		{"of a child that is not READY", func(tree *lbtest.Tree) {
			tree.Batch(func() { tree.SubConns[0].Says(failure, nil); tree.SubConns[1].Says(failure, nil) })
		}, &policy.Call{}, always, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := newTree(t, nil, half)
			tree.Draw = lbtest.Draws(0, tt.draw) // the first is round_robin's start
			up(tree)
			if tt.before != nil {
				tt.before(tree)
			}
			_, _ = tree.Pick(tt.call)
			if got := tree.Counters.Get(service).Judged(); got != tt.want {
				t.Errorf("%d are judged, want %d", got, tt.want)
			}
			tt.call.Held().Finish(policy.OutcomeSuccess, policy.NoInfo)
		})
	}
}

// TestBeforeConfig: a policy that has no config yet describes itself, and
// refuses a config that is not its own.
func TestBeforeConfig(t *testing.T) {
	tree := lbtest.NewTree(t, clusterimpl.Builder())
	if n := tree.Describe(); n.Policy != policy.ClusterImpl || n.State != connecting {
		t.Errorf("describes %+v", n)
	}
	if s := tree.Summarize(); s.State != connecting || s.Priority != -1 {
		t.Errorf("summary %+v", s)
	}
	if len(tree.Reports) != 0 {
		t.Errorf("reported %v", tree.Reports)
	}
}
