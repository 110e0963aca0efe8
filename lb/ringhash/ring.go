package ringhash

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// spot is an endpoint to be placed on a ring.
type spot struct {
	key    string
	weight uint32 // at least 1
	seat   int    // its index among the seats of pickers
}

// entry is one point of a ring.
type entry struct {
	hash uint64
	seat int32
}

// ring has the entries in the order of their hashes. It is immutable.
type ring []entry

// newRing places each endpoint on a share of the entries that is proportional to its
// weight (gRFC A42). The ring is large enough to give the endpoint with the lowest
// weight a whole number of entries at minSize, within maxSize. The arithmetic is
// exactly gRPC's, because all clients must have the same ring.
//
// An entry's hash is XXH64 of the endpoint's key, "_" and the number of the entry.
func newRing(spots []spot, minSize, maxSize uint64) ring {
	var sum uint64
	for _, s := range spots {
		sum += uint64(s.weight)
	}
	spots = slices.Clone(spots)
	slices.SortStableFunc(spots, func(a, b spot) int { return cmp.Compare(a.key, b.key) })
	part := func(s spot) float64 { return float64(s.weight) / float64(sum) }
	lightest := 1.0
	for _, s := range spots {
		lightest = min(lightest, part(s))
	}
	scale := min(math.Ceil(lightest*float64(minSize))/lightest, float64(maxSize))

	r := make(ring, 0, int(math.Ceil(scale)))
	var target float64 // how many entries the ring has once this endpoint is placed
	var name []byte
	for _, s := range spots {
		target += scale * part(s)
		name = append(append(name[:0], s.key...), '_')
		stem := len(name)
		for i := int64(0); float64(len(r)) < target; i++ {
			name = strconv.AppendInt(name[:stem], i, 10)
			r = append(r, entry{hash: xxhash.Sum64(name), seat: int32(s.seat)})
		}
	}
	slices.SortStableFunc(r, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	return r
}

// at returns the place of the first entry whose hash is at least h; after the last is
// the first.
func (r ring) at(h uint64) int {
	low, high := 0, len(r)
	for low < high { // by hand: a func called at each step makes the whole pick half as slow again
		if middle := (low + high) / 2; r[middle].hash < h {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(r) {
		return 0
	}
	return low
}
