package picks

import (
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestRecentTarget: picks into one answer see clusters that come, leave and come back.
func TestRecentTarget(t *testing.T) {
	k := newKit(t, 0, nil, 1024, locality("a", 0, 1, 1))
	apply := func(cluster string, localities ...*resource.LocalityEndpoints) {
		t.Helper()
		target := resolver.Target(cluster)
		change := resolver.TargetConfig{Target: target}
		if localities != nil {
			change.Config = ledgertest.Config(cluster, &resource.Assignment{Name: cluster, Localities: localities})
		}
		gone := k.ledger.Apply([]resolver.TargetConfig{change})
		gone.Close()
		noError(t, k.ledger.Settle(t.Context(), []string{target}))
	}
	var out Picks
	expect := func(cluster, want string) {
		t.Helper()
		got := ""
		if err := k.Pick(t.Context(), &Request{Cluster: cluster}, &out); err == nil {
			got = out.Picks[0].Address
		} else if code(err) != fault.UnknownCluster {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("cluster %s: picked %q, want %q", cluster, got, want)
		}
	}
	expect("orders", "a-0")
	expect("users", "")
	apply("users", locality("b", 0, 1, 1))
	expect("users", "b-0")
	expect("users", "b-0")
	expect("orders", "a-0")
	apply("orders")
	expect("orders", "")
	expect("users", "b-0")
	apply("orders", locality("c", 0, 1, 1))
	expect("orders", "c-0")
	apply("orders", locality("d", 0, 1, 1)) // the same target
	expect("orders", "d-0")
	apply("orders")
	apply("orders", locality("e", 0, 1, 1)) // another one
	expect("orders", "e-0")
}

// TestOwnDraws: picks take their random numbers from the answer, if the Picker says so.
func TestOwnDraws(t *testing.T) {
	k := newKit(t, 0, []resource.Drop{{Category: "few", PerMillion: 500_000}}, 1024, locality("a", 0, 1, 1), locality("b", 0, 1, 1))
	k.options.OwnDraws = true
	k.draw = func() uint64 {
		t.Error("a pick drew from the tree")
		return 0
	}
	counts := make(map[string]int)
	var out Picks
	for range 2000 {
		if err := k.Pick(t.Context(), &Request{Cluster: "orders"}, &out); err == nil {
			counts[out.Picks[0].Address]++
		} else if code(err) == fault.Dropped {
			counts["dropped"]++
		} else {
			t.Fatal(err)
		}
	}
	for what, mean := range map[string]int{"dropped": 1000, "a-0": 500, "b-0": 500} {
		if n := counts[what]; n < mean-150 || n > mean+150 { // 6 standard deviations
			t.Errorf("%s: %d of 2000 picks, about %d are expected", what, n, mean)
		}
	}
}
