package ledger

import (
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

var (
	near = resource.Locality{Zone: "near"}
	far  = resource.Locality{Zone: "far"}
)

// host gives the cluster orders localities, in one priority each.
func host(t *testing.T, l *Ledger, ids ...resource.Locality) *Cluster {
	t.Helper()
	a := ledgertest.Assignment("orders", ids...)
	for i, locality := range a.Localities {
		locality.Priority = uint32(i)
	}
	gone := l.Apply([]resolver.TargetConfig{{Target: resolver.Target("orders"), Config: ledgertest.Config("orders", a)}})
	gone.Close()
	return l.Hosted().Own("orders").View().Only
}

// picked returns the call of a pick of u in a priority.
func picked(u *policy.Upstream, priority int) *policy.Call {
	return &policy.Call{Upstream: u, Endpoint: u.Endpoint, Priority: priority}
}

// TestPlaces: picks count in their place also when the endpoint keeps another, and in
// the total also when the place has left the config.
func TestPlaces(t *testing.T) {
	l := newTestLedger(t)
	u := &policy.Upstream{Endpoint: &resource.Endpoint{Locality: near}}
	expect := func(step string, c *Cluster, total uint64, want ...uint64) {
		t.Helper()
		var got []uint64
		for priority, of := range c.Localities() {
			got = append(got, c.Places.Count(priority, of.ID))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || c.Succeeded() != total {
			t.Errorf("%s: %v, %d in all; want %v, %d", step, got, c.Succeeded(), want, total)
		}
	}
	first := host(t, l, near, far)
	for range 2 {
		first.CountPick(picked(u, 0))
	}
	expect("two picks", first, 2, 2, 0)
	first.CountPick(&policy.Call{Endpoint: u.Endpoint})
	expect("without an Upstream", first, 3, 3, 0)

	second := host(t, l, far, near)
	second.CountPick(picked(u, 1))
	expect("another priority", second, 4, 0, 1)
	first.CountPick(picked(u, 0))
	expect("a pick that began before", second, 5, 0, 1)

	third := host(t, l, far)
	third.CountPick(picked(u, 1))
	expect("the locality has left", third, 6, 0)

	fourth := host(t, l, far, near)
	fourth.CountPick(picked(u, 1))
	expect("it has come back", fourth, 7, 0, 1)
	if got := maps.Collect(fourth.Results()); got[OK] != 7 || len(got) != 1 {
		t.Errorf("results %v", got)
	}
	gone := l.Apply([]resolver.TargetConfig{{Target: resolver.Target("orders")}})
	gone.Close()
	again := host(t, l, far, near)
	again.CountPick(picked(u, 1))
	expect("another target of that name", again, 1, 0, 1)
}

// TestPlacesLoseNoPick: each pick is counted once while places come and go.
func TestPlacesLoseNoPick(t *testing.T) {
	l := newTestLedger(t)
	host(t, l, near, far)
	target := l.Hosted().Own("orders")
	const callers, each = 4, 2000
	var wg sync.WaitGroup
	u := &policy.Upstream{Endpoint: &resource.Endpoint{Locality: near}}
	for i := range callers {
		wg.Go(func() {
			for range each {
				target.Cluster("orders").CountPick(picked(u, i%2))
			}
		})
	}
	last := uint64(0)
	for i := range 200 {
		host(t, l, [][]resource.Locality{{near, far}, {far, near}, {far}}[i%3]...)
		n := target.Cluster("orders").Succeeded()
		if n < last {
			t.Errorf("%d picks after %d", n, last)
		}
		last = n
	}
	wg.Wait()
	if n := target.Cluster("orders").Succeeded(); n != callers*each {
		t.Errorf("%d picks, want %d", n, callers*each)
	}
}
