//go:build !race

package picks

import (
	"fmt"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAllocLease: a lease allocates nothing, for any owner, nor does its end, nor a repeated one.
func TestAllocLease(t *testing.T) {
	k := newKit(t, 0, nil, 1024, locality("a", 0, 1, 2))
	var out Picks
	n := 0
	for name, owner := range map[string]func() string{
		"unnamed": func() string { return "" },
		"one":     func() string { return "web" },
		"few":     func() string { n++; return names[n%len(names)] },
	} {
		r := Request{Cluster: "orders", TTL: time.Hour}
		use := func() {
			r.Owner.Name = owner()
			noError(t, k.Pick(t.Context(), &r, &out))
			for range 2 {
				if _, err := k.EndLease(out.Picks[0].Lease.ID, Success, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 2 * MaxEndedLeases { // until slots are used again
			use()
		}
		if got := testing.AllocsPerRun(1000, use); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	id := out.Picks[0].Lease.ID
	text := id.String()
	buffer := make([]byte, 0, LeaseIDLength)
	if got := testing.AllocsPerRun(100, func() {
		parsed, ok := ParseLeaseID(text)
		buffer, _ = parsed.AppendText(buffer[:0])
		if !ok || string(buffer) != text {
			t.Fatal(parsed)
		}
	}); got != 0 {
		t.Errorf("%v allocations to read and write an ID", got)
	}
}

// TestAllocFleetLease: a lease of a limit of the fleet allocates nothing.
func TestAllocFleetLease(t *testing.T) {
	k, l := newFleetKit(t)
	l.Set(10, time.Hour, policy.Clock()+time.Hour)
	var out Picks
	r := Request{Cluster: "orders", TTL: time.Hour}
	use := func() {
		noError(t, k.Pick(t.Context(), &r, &out))
		noError(t, k.Confirm(&out))
		if _, err := k.EndLease(out.Picks[0].Lease.ID, Success, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 * MaxEndedLeases { // until slots are used again
		use()
	}
	if got := testing.AllocsPerRun(1000, use); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

var names = []string{"a", "b", "c", "d", "e"}

func BenchmarkLease(b *testing.B) {
	for _, held := range []int{0, 100_000} {
		b.Run(fmt.Sprint("held=", held), func(b *testing.B) {
			k := newKit(b, 0, nil, 1<<31, locality("a", 0, 1, 100))
			for range held / 1000 {
				if _, err := k.pick(Request{N: 1000, TTL: time.Hour}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				r := Request{Cluster: "orders", TTL: time.Hour}
				var out Picks
				for p.Next() {
					if err := k.Pick(b.Context(), &r, &out); err != nil {
						b.Error(err)
						return
					}
					if _, err := k.EndLease(out.Picks[0].Lease.ID, Success, nil); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
