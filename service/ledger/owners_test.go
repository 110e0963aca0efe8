package ledger

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// Owners without leases are forgotten, but for the last few, and the count of each owner is right.
func TestOwnersAreForgotten(t *testing.T) {
	l := &newTotals("orders").Leases
	web := l.Begin(Owner{Identity: "web"}, 0)
	l.Begin(Owner{Identity: "web"}, 0)
	l.Begin(Owner{}, 0)
	for i := range 100 {
		o := Owner{Name: fmt.Sprint(i)}
		first, second := l.Begin(o, 2), l.Begin(o, 2)
		if first != second || first.Owner != o || first.Cluster != "orders" {
			t.Fatalf("%v holds %+v and %+v", o, first, second)
		}
		if l.Begin(o, 2) != nil {
			t.Errorf("%v holds more than its limit", o)
		}
		first.End()
		second.End()
	}
	if n := len(l.byName); n > idleOwners+1 {
		t.Errorf("%d owners are kept", n)
	}
	want := []Holder{{Owner{Identity: "web"}, 2}, {Owner{}, 1}}
	if got := l.LargestNow(time.Now()); !slices.Equal(got, want) || l.Load() != 3 {
		t.Errorf("%v hold %d leases; want %v", got, l.Load(), want)
	}
	web.End()
	if again := l.Begin(Owner{Identity: "web"}, 0); again != web {
		t.Error("an owner with leases was forgotten")
	}
}

// Leases of an AGGREGATE count for its leaves, but not in the sum over all clusters.
func TestLeasesThroughAnAggregate(t *testing.T) {
	l := &newTotals("leaf").Leases
	web := Owner{Identity: "web"}
	through, own := l.BeginThrough(web), l.Begin(web, 2)
	if l.Begin(web, 2) != nil {
		t.Error("the limit does not count leases of an AGGREGATE")
	}
	l.BeginThrough(Owner{})
	if h := l.LargestNow(time.Now()); !slices.Equal(h, []Holder{{web, 2}, {Owner{}, 1}}) || l.Load() != 3 || l.Picked() != 1 {
		t.Errorf("%v hold %d leases, %d of picks of the leaf", h, l.Load(), l.Picked())
	}
	own.End()
	through.EndThrough()
	if l.Load() != 1 || l.Picked() != 0 {
		t.Errorf("%d leases remain, %d of picks of the leaf", l.Load(), l.Picked())
	}
}

// Owners come and go on many goroutines; no lease is lost.
func TestOwnersConcurrently(t *testing.T) {
	l := &newTotals("orders").Leases
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			var held []*OwnerLeases
			for i := range 3000 {
				o := Owner{Name: fmt.Sprint((i + worker) % 20)}
				if own := l.Begin(o, 3); own != nil {
					if own.Owner != o {
						t.Errorf("%v is counted for %v", o, own.Owner)
					}
					held = append(held, own)
				}
				if i%3 > 0 && len(held) > 0 {
					held[0].End()
					held = held[1:]
				}
			}
			for _, own := range held {
				own.End()
			}
		})
	}
	wg.Wait()
	if l.Load() != 0 || l.LargestNow(time.Now()) != nil || len(l.byName) > idleOwners {
		t.Errorf("%d leases remain, %d owners", l.Load(), len(l.byName))
	}
	for o, own := range l.byName {
		if n := own.count.Load(); n != 0 {
			t.Errorf("%v has %d", o, n)
		}
	}
}

// The lock is taken, and a target's records looked at, only when the last lease of an unused cluster ends.
func TestLastLeaseOfAnUnusedCluster(t *testing.T) {
	totals := newTotals("orders")
	ended := 0
	totals.Leases.last = func() { ended++ }
	for _, unused := range []bool{false, true} {
		totals.Leases.unused.Store(unused)
		totals.Leases.Begin(Owner{}, 0).End()
	}
	if ended != 1 {
		t.Errorf("last is called %d times", ended)
	}
}
