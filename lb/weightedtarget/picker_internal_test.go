package weightedtarget

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestAt compares with the definition: the first seat whose cumulative weight is
// greater than the draw's part of the sum.
func TestAt(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 1; n <= 128; n++ {
		var in []*child
		var ends []uint64
		var sum uint64
		for range n {
			c := new(child)
			c.Own.Locality = &policy.Locality{Weight: max(1, r.Uint32()>>r.IntN(32))}
			in = append(in, c)
			sum += uint64(c.Own.Locality.Weight)
			ends = append(ends, sum)
		}
		p := newPicker(in, r.Uint64)
		for range 1000 {
			draw := r.Uint64()
			of, _ := bits.Mul64(draw, sum)
			want := slices.IndexFunc(ends, func(end uint64) bool { return end > of })
			if got := p.at(draw); got != want {
				t.Fatalf("draw %d of %d seats with cumulative weights %d: seat %d, want %d", draw, n, ends, got, want)
			}
		}
	}
}
