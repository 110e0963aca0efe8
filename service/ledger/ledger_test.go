package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

// newTestLedger returns a ledger whose tests apply configs themselves.
func newTestLedger(t *testing.T) *Ledger {
	t.Helper()
	draining, drain := context.WithCancel(t.Context())
	l := New(Options{
		Channel: lb.Options{
			Registry: lb.Policies(), Draw: rand.Uint64,
			Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil},
		},
		Report:   func(*Target, []policy.Event) {},
		Draining: draining,
	})
	t.Cleanup(func() {
		drain()
		l.Close()
	})
	return l
}

// hostedTarget returns an xds target.
func hostedTarget(t *testing.T, l *Ledger, name string) *Target {
	t.Helper()
	found, err := l.XDSTarget(name)
	noError(t, err)
	return found
}

// counted is how many of some clusters have counters.
func counted(l *Ledger, clusters ...string) int {
	n := 0
	for _, name := range clusters {
		if l.counters.Get(resource.ServiceKey{Cluster: name}) != nil {
			n++
		}
	}
	return n
}

// TestClustersAreReleased: a cluster that leaves a target takes its series and
// counters with it, and the others stay as they are.
func TestClustersAreReleased(t *testing.T) {
	l := newTestLedger(t)
	const shop = "xds:///shop"
	apply := func(config *resource.Config, records, clusters int) {
		t.Helper()
		l.Apply([]resolver.TargetConfig{{Target: shop, Config: config}}).Close()
		noError(t, l.Settle(t.Context(), []string{shop}))
		if n := counted(l, "a", "b"); l.recordSeries != records || l.totalsSeries != clusters || len(l.totals) != clusters || n != clusters {
			t.Errorf("%d records, %d clusters of %d with series, %d with counters; want %d and %d", l.recordSeries, l.totalsSeries, len(l.totals), n, records, clusters)
		}
	}
	a, b := ledgertest.Usable("a"), ledgertest.Usable("b")
	apply(&resource.Config{Target: shop, Pending: true}, 1, 0) // that of picks without a cluster
	apply(ledgertest.Routed(shop, a, b), 3, 2)
	before := hostedTarget(t, l, "shop").Cluster("a")
	apply(ledgertest.Routed(shop, a), 2, 1)
	if after := hostedTarget(t, l, shop).Cluster("a"); after.Record != before.Record || after.Leaves[0] != before.Leaves[0] {
		t.Error("what stays in the target is another")
	}
	other := *a
	other.Assignment = ledgertest.Assignment("a", resource.Locality{Zone: "z"})
	apply(ledgertest.Routed(shop, &other), 2, 1)
	if after := hostedTarget(t, l, shop).Cluster("a"); after.Record != before.Record || after.Leaves[0].Assignment != other.Assignment {
		t.Error("what changes in the target does not")
	}
	apply(&resource.Config{Target: shop, Err: errGone}, 1, 0)
	apply(nil, 0, 0)
}

// TestAClusterIsTheSameWhileAllOfItIs: an aggregate is another with its leaf.
func TestAClusterIsTheSameWhileAllOfItIs(t *testing.T) {
	config := ledgertest.Routed("xds:///shop")
	ledgertest.Aggregated(config, "agg", ledgertest.Usable("leaf"))
	m := &Cluster{Record: &Record{Name: "agg"}, Config: config}
	next := *config
	next.Clusters = few.Of(map[string]*resource.ClusterConfig{"agg": config.Clusters.Get("agg"), "leaf": config.Clusters.Get("leaf")})
	if !m.isSameIn(&next) {
		t.Error("it is another where all of it is the same")
	}
	next.Clusters.Set("leaf", ledgertest.Usable("leaf"))
	if m.isSameIn(&next) {
		t.Error("it is the same where its leaf is another")
	}
}

// TestLeavesAreReleased: a cluster's counters stay while a target comes down to it,
// and no longer.
func TestLeavesAreReleased(t *testing.T) {
	l := newTestLedger(t)
	apply := func(cluster string, config *resource.Config) {
		t.Helper()
		l.Apply([]resolver.TargetConfig{{Target: resolver.Target(cluster), Config: config}}).Close()
		noError(t, l.Settle(t.Context(), []string{resolver.Target(cluster)}))
	}
	own := ledgertest.Config("a", ledgertest.Assignment("a", resource.Locality{Zone: "a"}))
	all := func(leaves ...string) *resource.Config {
		config := ledgertest.Config("all", nil)
		for _, name := range leaves {
			config.Clusters.Set(name, ledgertest.Config(name, ledgertest.Assignment(name, resource.Locality{Zone: name})).Clusters.Get(name))
		}
		root := config.Clusters.Get("all")
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
		if n := counted(l, "a", "b", "c", "all"); n != step.want {
			t.Errorf("%s: %d clusters are counted, want %d", step.cluster, n, step.want)
		}
	}
	if n := len(l.totals) + l.recordSeries + l.totalsSeries; n != 0 {
		t.Errorf("clusters %v are counted, %d records and %d clusters have series", l.totals, l.recordSeries, l.totalsSeries)
	}
}

// TestResolutionNote: what is added to the detail of a failed pick.
func TestResolutionNote(t *testing.T) {
	of := func(kind resource.Type, name, why string) resolver.AmbientError {
		return resolver.AmbientError{Key: resource.Key{Type: kind, Name: name}, Err: errors.New(why)}
	}
	var same, different []resolver.AmbientError
	for i := range 5 {
		same = append(same, of(resource.TypeCluster, fmt.Sprint(i), "away"))
		different = append(different, of(resource.TypeCluster, fmt.Sprint(i), fmt.Sprint("error ", i)))
	}
	for _, test := range []struct {
		errors []resolver.AmbientError
		want   string
	}{
		{nil, "refused"},
		{[]resolver.AmbientError{of(resource.TypeCluster, "cart", "deleted")}, "refused (resolution note: using the cached Cluster/cart: deleted)"},
		{
			[]resolver.AmbientError{of(resource.TypeListener, "shop", "away"), of(resource.TypeCluster, "cart", "deleted"), of(resource.TypeAssignment, "cart", "away")},
			"refused (resolution note: using the cached Listener/shop, ClusterLoadAssignment/cart: away; using the cached Cluster/cart: deleted)",
		},
		{same, "refused (resolution note: using the cached Cluster/0, Cluster/1, Cluster/2 and 2 more: away)"},
		{different, "refused (resolution note: using the cached Cluster/0: error 0; using the cached Cluster/1: error 1; " +
			"using the cached Cluster/2: error 2; and 2 more errors)"},
	} {
		if got := newAmbient(test.errors).AppendNote("refused"); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
	}
}

// TestPlacesOfAnAggregate: its priorities are those of its leaves in a row, each
// leaf one at least.
func TestPlacesOfAnAggregate(t *testing.T) {
	two := ledgertest.Assignment("b", resource.Locality{Zone: "b0"}, resource.Locality{Zone: "b1"})
	two.Localities[1].Priority = 1
	config := &resource.Config{Clusters: few.Of(map[string]*resource.ClusterConfig{
		"all": {Leaves: []string{"empty", "b", "c"}}, "empty": {},
		"b": {Assignment: two}, "c": {Assignment: ledgertest.Assignment("c", resource.Locality{Zone: "c0"})},
	})}
	var got []string
	for priority, l := range (&Cluster{Record: &Record{Name: "all"}, Config: config}).Localities() {
		got = append(got, fmt.Sprint(priority, " ", l.ID.Zone))
	}
	if want := "[1 b0 2 b1 3 c0]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
