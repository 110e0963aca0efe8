package weightedtarget

import "math/bits"

// aliasTable draws an index by weight in constant time (the alias method of Walker and
// Vose): a draw chooses a cell, and the place within it chooses between the cell's
// index and its alias.
type aliasTable []cell

type cell struct {
	// own is the fraction of the cell for its own index, as a multiple of 2^-64; a
	// full cell aliases itself.
	own   uint64
	alias uint32
}

// newAliasTable builds the table of weights that are at least 1 and sum to at most
// 2^32-1.
func newAliasTable(weights []uint32) aliasTable {
	n := uint64(len(weights))
	var sum uint64
	for _, w := range weights {
		sum += uint64(w)
	}
	// An index's share of the cells is weight × n / sum, stored as weight × n, with
	// sum as the size of a cell.
	share := make([]uint64, n)
	var small, large []uint32
	for i, w := range weights {
		share[i] = uint64(w) * n
		if share[i] < sum {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	t := make(aliasTable, n)
	for i := range t {
		t[i].alias = uint32(i)
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		t[s].own, _ = bits.Div64(share[s], 0, sum)
		t[s].alias = l
		share[l] -= sum - share[s]
		if share[l] < sum {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	return t
}

// at returns the index of 64 random bits.
func (t aliasTable) at(draw uint64) int {
	i, place := bits.Mul64(draw, uint64(len(t)))
	if place < t[i].own {
		return int(i)
	}
	return int(t[i].alias)
}
