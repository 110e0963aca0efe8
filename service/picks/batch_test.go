package picks

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// In every batch, each endpoint, locality, drop category and cluster of a route has its share within one pick; and
// over many small batches as well, as they continue in the gaps of each other. Another
// caller at the same time changes nothing.
func TestBatchesKeepTheShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		small := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(rt, name) }
		a := &resource.Assignment{Name: "orders"}
		left := 1.0 // of the picks, after the drops so far
		share := map[string]float64{}
		for i := range small("drops", 0, 2) {
			d := resource.Drop{Category: fmt.Sprint("drop", i), PerMillion: uint64(small("chance", 0, 600_000))}
			a.Drops = append(a.Drops, d)
			share[d.Category] = left * float64(d.PerMillion) / 1e6
			left -= share[d.Category]
		}
		weighted := rapid.Bool().Draw(rt, "weighted")
		total := 0
		for i := range small("localities", 1, 4) {
			l := locality(fmt.Sprint(i), 0, uint32(small("weight", 1, 9)), small("endpoints", 1, 5))
			total += int(l.Weight)
			a.Localities = append(a.Localities, l)
		}
		for _, l := range a.Localities {
			of := 0
			for _, e := range l.Endpoints {
				if weighted {
					e.Weight = uint32(small("weight", 1, 9))
				}
				of += int(e.Weight)
			}
			for _, e := range l.Endpoints {
				share[e.Addresses[0]] = left * float64(l.Weight) / float64(total) * float64(e.Weight) / float64(of)
				share[l.ID.Zone] += share[e.Addresses[0]]
			}
		}
		config := ledgertest.Config("orders", a)
		if weighted {
			config.Clusters.Get("orders").Cluster.Policy.Child = &resource.Policy{Name: "weighted_round_robin"}
		}
		k := newKitOf(t, 0, config, nil)
		defer k.close()
		n := small("n", 2, MaxPicks)
		batches := small("batches", 1, 8)
		caller := func() error {
			sum := map[string]int{}
			var out Picks
			for range batches {
				got := map[string]int{}
				if err := k.Pick(t.Context(), &Request{Cluster: "orders", N: n}, &out); err != nil && code(err) != fault.Dropped {
					return err
				}
				for i := range out.Picks {
					got[out.Picks[i].Address]++
					got[out.Picks[i].Locality().Zone]++
				}
				maps.Copy(got, out.Dropped)
				for name, p := range share {
					if math.Abs(float64(got[name])-p*float64(n)) > 1.0001 {
						return fmt.Errorf("%s has %d of %d, want %.3f", name, got[name], n, p*float64(n))
					}
					sum[name] += got[name]
				}
			}
			for name, p := range share {
				if all := float64(n * batches); math.Abs(float64(sum[name])-p*all) > 4 {
					return fmt.Errorf("%s has %d of %v in %d batches, want %.3f", name, sum[name], all, batches, p*all)
				}
			}
			return nil
		}
		var callers errgroup.Group
		callers.Go(caller)
		callers.Go(caller)
		if err := callers.Wait(); err != nil {
			rt.Fatal(err)
		}
	})
}
