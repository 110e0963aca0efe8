package weightedroundrobin

import (
	"math"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
)

// fullStride is the stride of the heaviest seat.
const fullStride = math.MaxUint16

// scheduler says whose turn it is: gRPC's static stride scheduler. The sequence
// goes round the seats, and each of them takes that part of its turns which its
// weight is of the heaviest one's, spread evenly. It is never changed.
type scheduler struct {
	// weights are the seats', each above 0; sum is theirs.
	weights []float64
	sum     float64
	from    policy.WeightSource
	// strides are the weights scaled to fullStride.
	strides []uint16
}

// newScheduler returns the scheduler of weights, at least one of them above 0. A
// seat without weight gets the mean of the others.
func newScheduler(weights []float64, from policy.WeightSource) *scheduler {
	s := &scheduler{weights: weights, from: from, strides: make([]uint16, len(weights))}
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
	for i, w := range weights {
		if w == 0 {
			weights[i] = mean
			s.sum += mean
		}
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
