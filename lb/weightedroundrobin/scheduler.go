package weightedroundrobin

import (
	"math"
	"sort"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
)

// fullStride is the stride of the heaviest seat.
const fullStride = math.MaxUint16

// scheduler is gRPC's static stride scheduler: in a sequence of turns over the seats,
// each seat takes a part of its turns, evenly spread: its weight divided by the
// heaviest. It is immutable.
type scheduler struct {
	seats

	// weights are above 0, ends their cumulative sums, and sum the last of these.
	weights []float64
	ends    []float64
	sum     float64
	from    WeightSource
	// strides are the weights scaled to fullStride.
	strides []uint16
}

// newScheduler returns the scheduler of seats. At least one weight is above 0. A seat
// without weight gets the mean.
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
		// Every seat has a turn: in gRPC those below a 131,070th of the heaviest have
		// none.
		s.strides[i] = uint16(max(1, math.Round(weights[i]/heaviest*fullStride)))
	}
	return s
}

// next returns the seat of the next turn.
func (s *scheduler) next(sequence *atomic.Uint32) int {
	n := uint64(len(s.strides))
	for {
		at := uint64(sequence.Add(1))
		round, seat := at/n, at%n
		stride := uint64(s.strides[seat])
		// Each round adds a seat's stride, and the seat is chosen when the sum wraps
		// around. Neighbors are half a lap apart, so that seats of the same weight are
		// not skipped in the same rounds.
		if (stride*round+seat*(fullStride/2))%fullStride >= fullStride-stride {
			return int(seat)
		}
	}
}

func (s *scheduler) Weight(i int) float64 { return s.weights[i] }

func (s *scheduler) At(draw uint64) int {
	at := policy.UnitOf(draw) * s.sum
	i := sort.Search(len(s.ends), func(i int) bool { return s.ends[i] > at })
	return min(i, len(s.ends)-1)
}

func (s *scheduler) Detail(i int) policy.Detail {
	return &WeightedTurn{Weight: s.weights[i], Share: s.weights[i] / s.sum, From: s.from}
}
