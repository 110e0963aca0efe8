package weightedtarget

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// probabilities counts, for each index, the draws out of 2^64 that fall on it,
// exactly.
func probabilities(t aliasTable) []*big.Int {
	n := big.NewInt(int64(len(t)))
	// first is the smallest draw whose product with n reaches x.
	first := func(x *big.Int) *big.Int {
		return new(big.Int).Div(new(big.Int).Add(x, new(big.Int).Sub(n, big.NewInt(1))), n)
	}
	out := make([]*big.Int, len(t))
	for i := range out {
		out[i] = new(big.Int)
	}
	for i, c := range t {
		begin := new(big.Int).Lsh(big.NewInt(int64(i)), 64)
		own := new(big.Int).Add(begin, new(big.Int).SetUint64(c.own))
		end := new(big.Int).Lsh(big.NewInt(int64(i+1)), 64)
		out[i].Add(out[i], new(big.Int).Sub(first(own), first(begin)))
		out[c.alias].Add(out[c.alias], new(big.Int).Sub(first(end), first(own)))
	}
	return out
}

// TestAliasTableIsExact: every index has its weight's share of all draws, to
// 2^-60.
func TestAliasTableIsExact(t *testing.T) {
	ramp := make([]uint32, 100)
	for i := range ramp {
		ramp[i] = uint32(i + 1)
	}
	for _, weights := range [][]uint32{
		{1},
		{math.MaxUint32},
		{1, 1},
		{1, 2},
		{1, 2, 3},
		{3, 2, 1},
		{5, 5, 5},
		{1, 99},
		{99, 1},
		{1, 1, 1, 1, 1, 1, 1},
		{1, math.MaxUint32 - 1},
		{math.MaxUint32 / 2, 1, math.MaxUint32 / 2},
		{10, 20, 30, 40},
		{7, 1, 1, 1, 7},
		ramp,
	} {
		t.Run(fmt.Sprint(weights), func(t *testing.T) {
			sum := new(big.Int)
			for _, w := range weights {
				sum.Add(sum, big.NewInt(int64(w)))
			}
			all := new(big.Int)
			for i, got := range probabilities(newAliasTable(weights)) {
				all.Add(all, got)
				// |got / 2^64 - weight / sum| < 2^-60
				diff := new(big.Int).Mul(got, sum)
				diff.Sub(diff, new(big.Int).Lsh(big.NewInt(int64(weights[i])), 64)).Abs(diff)
				if diff.Cmp(new(big.Int).Lsh(sum, 4)) >= 0 {
					t.Errorf("index %d of weight %d has %v draws of 2^64", i, weights[i], got)
				}
			}
			if all.Cmp(new(big.Int).Lsh(big.NewInt(1), 64)) != 0 {
				t.Errorf("%v draws in all, want 2^64", all)
			}
		})
	}
}
