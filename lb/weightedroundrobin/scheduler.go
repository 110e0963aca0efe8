package weightedroundrobin

import (
	"math"
	"sort"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
)

// fullStride is the stride of the heaviest seat.
const fullStride = math.MaxUint16

// scheduler says whose turn it is: gRPC's static stride scheduler. The sequence
// goes round the seats, and each of them takes that part of its turns which its
// weight is of the heaviest one's, spread evenly. It is never changed.
type scheduler struct {
	seats

	// weights are the seats', each above 0. ends holds for each seat the sum of
	// the weights up to and with it; sum is that of all.
	weights []float64
	ends    []float64
	sum     float64
	from    WeightSource
	// strides are the weights scaled to fullStride.
	strides []uint16
}

// newScheduler returns the scheduler of seats with weights, at least one of them
// above 0. A seat without weight gets the mean of the others.
func newScheduler(seats seats, weights []float64, from WeightSource) *scheduler {
	n := len(weights)
	s := &scheduler{seats: seats, weights: weights, from: from, ends: make([]float64, n), strides: make([]uint16, n)}
	var heaviest float64
	known := 0
	for _, w := range weights {
		if w > 0 {
			known++
			s.sum += w
			heaviest = max(heaviest, w)
		}
	}
	mean := s.sum / float64(known)
	s.sum = 0
	for i, w := range weights {
		if w == 0 {
			weights[i] = mean
		}
		s.sum += weights[i]
		s.ends[i] = s.sum
		// However light a seat is, it has a turn: in gRPC those below a
		// 131,070th of the heaviest have none.
		s.strides[i] = uint16(max(1, math.Round(weights[i]/heaviest*fullStride)))
	}
	return s
}

// next takes the next turn of the sequence, and says which seat's it is.
func (s *scheduler) next(sequence *atomic.Uint32) int {
	n := uint64(len(s.strides))
	for {
		at := uint64(sequence.Add(1))
		round, seat := at/n, at%n
		stride := uint64(s.strides[seat])
		// Each round brings a seat one stride further, and over the edge that
		// many times. Neighbours are half a lap apart, so that seats of one
		// weight do not all leave out the same rounds.
		if (stride*round+seat*(fullStride/2))%fullStride >= fullStride-stride {
			return int(seat)
		}
	}
}

// Weight returns the weight of the seat at an index.
func (s *scheduler) Weight(i int) float64 { return s.weights[i] }

// At maps a draw to an index, by weight.
func (s *scheduler) At(draw uint64) int {
	at := policy.UnitOf(draw) * s.sum
	i := sort.Search(len(s.ends), func(i int) bool { return s.ends[i] > at })
	return min(i, len(s.ends)-1)
}

// Detail returns the weight of the seat at an index, for a trace.
func (s *scheduler) Detail(i int) policy.Detail {
	return &WeightedTurn{Weight: s.weights[i], Share: s.weights[i] / s.sum, From: s.from}
}
