package service

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// routed is the config of a target whose one route draws among clusters.
func routed(name string, clusters ...*resource.ClusterConfig) *resource.Config {
	prefix := "/"
	route := &resource.Route{Match: resource.RouteMatch{Prefix: &prefix}}
	config := &resource.Config{
		Target: name, Clusters: make(map[string]*resource.ClusterConfig),
		VirtualHost: &resource.VirtualHost{Name: "all", Domains: []string{"*"}, Routes: []*resource.Route{route}},
		Listener:    &resource.Listener{Name: name},
	}
	for _, cc := range clusters {
		route.Clusters = append(route.Clusters, resource.WeightedCluster{Name: cc.Cluster.Name, Weight: 1})
		route.TotalWeight++
		config.Roots = append(config.Roots, cc.Cluster.Name)
		config.Clusters[cc.Cluster.Name] = cc
	}
	return config
}

func usable(cluster string) *resource.ClusterConfig {
	return newConfig(cluster, newAssignment(cluster, resource.Locality{Zone: cluster})).Clusters[cluster]
}

// aggregated is an aggregate of one leaf that the config gets, too.
func aggregated(config *resource.Config, name string, leaf *resource.ClusterConfig) {
	root := &resource.ClusterConfig{Cluster: resource.DefaultCluster(name), Leaves: []string{leaf.Cluster.Name}}
	root.Cluster.Type = resource.ClusterAggregate
	config.Roots = append(config.Roots, name)
	config.Clusters[name] = root
	config.Clusters[leaf.Cluster.Name] = leaf
}

// TestMembersAreLetGo: a cluster that leaves a target takes its series and
// counters with it, and the others stay as they are.
func TestMembersAreLetGo(t *testing.T) {
	s := newService(t)
	const shop = "xds:///shop"
	apply := func(config *resource.Config, accounts, clusters int) {
		t.Helper()
		s.targets.apply([]resolver.Change{{Target: shop, Config: config}}).close()
		if err := s.targets.settle(t.Context(), []string{shop}); err != nil {
			t.Fatal(err)
		}
		if ts := s.targets; ts.withSeries != accounts || ts.sharing != clusters || len(ts.clusters) != clusters || len(ts.counted) != clusters {
			t.Errorf("%d accounts, %d clusters of %d with series, %d with counters; want %d and %d",
				ts.withSeries, ts.sharing, len(ts.clusters), len(ts.counted), accounts, clusters)
		}
	}
	a, b := usable("a"), usable("b")
	apply(&resource.Config{Target: shop, Pending: true}, 1, 0) // that of picks without a cluster
	apply(routed(shop, a, b), 3, 2)
	before := s.targets.xds("shop").member("a")
	apply(routed(shop, a), 2, 1)
	if after := s.targets.xds(shop).member("a"); after.account != before.account || after.leaves[0] != before.leaves[0] {
		t.Error("what stays in the target is another")
	}
	other := *a
	other.Assignment = newAssignment("a", resource.Locality{Zone: "z"})
	apply(routed(shop, &other), 2, 1)
	if after := s.targets.xds(shop).member("a"); after.account != before.account || after.leaves[0].Assignment != other.Assignment {
		t.Error("what changes in the target does not")
	}
	apply(&resource.Config{Target: shop, Err: errGone}, 1, 0)
	apply(nil, 0, 0)
}

// TestAMemberIsTheSameWhileAllOfItIs: an aggregate is another with its leaf.
func TestAMemberIsTheSameWhileAllOfItIs(t *testing.T) {
	config := routed("xds:///shop")
	aggregated(config, "agg", usable("leaf"))
	m := &member{account: &account{cluster: "agg"}, config: config}
	next := *config
	next.Clusters = map[string]*resource.ClusterConfig{"agg": config.Clusters["agg"], "leaf": config.Clusters["leaf"]}
	if !m.isSameIn(&next) {
		t.Error("it is another where all of it is the same")
	}
	next.Clusters["leaf"] = usable("leaf")
	if m.isSameIn(&next) {
		t.Error("it is the same where its leaf is another")
	}
}

// TestALeafThatPicksReachThroughItsAggregateOnly: its breaker and drops are told
// of, and what happens to it in the tree is told of the aggregate. Where picks
// reach it by itself as well both are told apart.
func TestALeafThatPicksReachThroughItsAggregateOnly(t *testing.T) {
	s := newService(t)
	leaf := usable("leaf")
	for name, own := range map[string]bool{"xds:///one": false, "xds:///two": true} {
		config := routed(name)
		aggregated(config, "agg", leaf)
		config.VirtualHost.Routes[0].Clusters = []resource.WeightedCluster{{Name: "agg", Weight: 1}}
		if own {
			config.Roots = append(config.Roots, "leaf")
		}
		s.targets.apply([]resolver.Change{{Target: name, Config: config}})
		if err := s.targets.settle(t.Context(), []string{name}); err != nil {
			t.Fatal(err)
		}
		const inFlight = `
# HELP lbd_circuit_breaker_in_flight How full is the circuit breaker: how many requests are in flight?
# TYPE lbd_circuit_breaker_in_flight gauge
lbd_circuit_breaker_in_flight{cluster="leaf"} 0
`
		const help = `# HELP lbd_connect_attempts_total How do connection attempts end? By result: ok, error.
# TYPE lbd_connect_attempts_total counter
`
		want := inFlight + help + `lbd_connect_attempts_total{cluster="agg",result="ok",target="` + name + `"} 1
`
		if own {
			want += `lbd_connect_attempts_total{cluster="leaf",result="ok",target="` + name + `"} 1
`
		}
		if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_circuit_breaker_in_flight", "lbd_connect_attempts_total"); err != nil {
			t.Error(err)
		}
		s.targets.apply([]resolver.Change{{Target: name}}).close()
	}
}

// TestAccountsBeyondTheLimit: pairs of cluster and target are what is counted, and
// picks that reached no cluster are a pair as well.
func TestAccountsBeyondTheLimit(t *testing.T) {
	s := newService(t)
	s.targets.maxSeries = 3
	a := usable("a")
	for _, name := range []string{"xds:///one", "xds:///two"} {
		s.targets.apply([]resolver.Change{{Target: name, Config: routed(name, a)}})
		if err := s.targets.settle(t.Context(), []string{name}); err != nil {
			t.Fatal(err)
		}
		if err := s.Pick(t.Context(), &PickRequest{Target: name, Path: "/"}, new(Picks)); err != nil {
			t.Fatal(err)
		}
		if err := s.Pick(t.Context(), &PickRequest{Target: name}, new(Picks)); err == nil {
			t.Fatal("an empty path was routed")
		}
	}
	want := `
# HELP lbd_circuit_breaker_max_requests How many requests may be in flight?
# TYPE lbd_circuit_breaker_max_requests gauge
lbd_circuit_breaker_max_requests{cluster="a"} 1024
# HELP lbd_endpoints How many endpoints are in each state?
# TYPE lbd_endpoints gauge
lbd_endpoints{cluster="_other",priority="0",state="ready",target=""} 1
lbd_endpoints{cluster="a",priority="0",state="ready",target="xds:///one"} 1
# HELP lbd_picks_total What happened to every pick, each once? By result: ok, or the code of its refusal.
# TYPE lbd_picks_total counter
lbd_picks_total{cluster="",result="no_route",target="xds:///one"} 1
lbd_picks_total{cluster="",result="no_route",target="xds:///two"} 1
lbd_picks_total{cluster="_other",result="ok",target=""} 1
lbd_picks_total{cluster="a",result="ok",target="xds:///one"} 1
`
	if err := testutil.GatherAndCompare(s.Registry(), strings.NewReader(want), "lbd_circuit_breaker_max_requests", "lbd_endpoints", "lbd_picks_total"); err != nil {
		t.Error(err)
	}
}
