package forecast

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ownerOf is the endpoint of a hash: that of the first arc whose End is at least the hash.
func ownerOf(arcs []policy.Arc, hash uint64) *resource.Endpoint {
	for _, a := range arcs {
		if a.End >= hash {
			return a.Endpoint
		}
	}
	return arcs[0].Endpoint
}

// TestMovedKeys compares the part of moved hashes with that of all intervals between two ends, which have
// one endpoint each before and after.
func TestMovedKeys(t *testing.T) {
	endpoints := []*resource.Endpoint{nil}
	for _, address := range []string{"a:1", "b:1", "c:1"} {
		endpoints = append(endpoints, &resource.Endpoint{Addresses: []string{address}})
	}
	draw := rand.New(rand.NewPCG(1, 1))
	ring := func() []policy.Arc {
		arcs := make([]policy.Arc, 1+draw.IntN(6))
		for i := range arcs {
			arcs[i] = policy.Arc{End: draw.Uint64() >> draw.IntN(64), Endpoint: endpoints[draw.IntN(len(endpoints))]}
			switch draw.IntN(8) {
			case 0:
				arcs[i].End = 0
			case 1:
				arcs[i].End = math.MaxUint64
			}
		}
		slices.SortFunc(arcs, func(a, b policy.Arc) int { return new(big.Int).SetUint64(a.End).Cmp(new(big.Int).SetUint64(b.End)) })
		return slices.CompactFunc(arcs, func(a, b policy.Arc) bool { return a.End == b.End })
	}
	node := func(arcs []policy.Arc) policy.Node {
		return policy.Node{Child: &policy.Node{Arcs: func() []policy.Arc { return arcs }}}
	}
	for range 20_000 {
		before, after := ring(), ring()
		ends := []uint64{math.MaxUint64}
		for _, a := range slices.Concat(before, after) {
			ends = append(ends, a.End)
		}
		slices.Sort(ends)
		moved, last := new(big.Int), big.NewInt(-1)
		for _, end := range ends {
			at := new(big.Int).SetUint64(end)
			if was := ownerOf(before, end); was != nil && was != ownerOf(after, end) {
				moved.Add(moved, new(big.Int).Sub(at, last))
			}
			last = at
		}
		want, _ := new(big.Float).Quo(new(big.Float).SetInt(moved), new(big.Float).SetInt(new(big.Int).Lsh(big.NewInt(1), 64))).Float64()
		if got, ok := movedKeys(node(before), node(after)); !ok || math.Abs(got-want) > 1e-12 {
			t.Fatalf("%v, %v of the hashes move, want %v: %v, %v", got, ok, want, before, after)
		}
	}
	if _, ok := movedKeys(node(ring()), policy.Node{}); ok {
		t.Error("moved hashes without a ring after the change")
	}
}
