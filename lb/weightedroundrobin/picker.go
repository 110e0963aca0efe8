package weightedroundrobin

import (
	"fmt"
	"math"
	"sort"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// picker takes the endpoints that were READY when it was made in turn, by weight, from
// a random start.
//
// Weights change every second. A new picker each time would wake every waiting pick
// and every watcher of the generation, so the owner replaces the scheduler instead.
type picker struct {
	seats    policy.Seats
	loads    []*load // of the seats
	draw     func() uint64
	sequence atomic.Uint32
	// scheduler is set before the first pick.
	scheduler atomic.Pointer[scheduler]
}

// newPicker returns a picker without weights. wake is called with an endpoint's first
// report.
func newPicker(seats policy.Seats, loads []*load, wake func(), draw func() uint64) *picker {
	p := &picker{seats: seats, loads: loads, draw: draw}
	for _, l := range loads {
		if l.wake == nil {
			l.wake = wake
		}
	}
	p.sequence.Store(uint32(draw()))
	return p
}

// weigh updates the weights. It reports whether there are load reports, so that
// weights change with time.
func (p *picker) weigh(now time.Time, c Config) (reported bool) {
	weights := make([]float64, len(p.seats))
	known, from := 0, WeightsFromLoads
	for i, l := range p.loads {
		if weights[i] = l.weight(now, c); weights[i] > 0 {
			known++
		}
		reported = reported || l.last.Load() != nil
	}
	if known < 2 {
		from = WeightsFromEDS
		for i := range p.seats {
			weights[i] = float64(max(1, p.seats[i].Endpoint.Weight))
		}
	}
	s := newScheduler(p.seats, weights, from)
	for i, l := range p.loads {
		l.share = s.weights[i] / s.sum
	}
	p.scheduler.Store(s)
	return reported
}

// Pick takes the next endpoint in turn; one of a batch the endpoint at its place. If the pick excludes it, one of the others is
// drawn by weight. A pick that holds reports the endpoint's load when it ends.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	s := p.scheduler.Load()
	call := policy.CallOf(info.Ctx)
	var turn int
	if call.Even() {
		turn = s.At(call.Draw(p.draw))
	} else {
		turn = s.next(&p.sequence)
	}
	i := call.Turn(Name, s, turn, p.draw)
	if i < 0 {
		return balancer.PickResult{}, policy.ErrAllExcluded
	}
	if call.Hold {
		call.OnFinish(p.loads[i])
	}
	return p.seats[i].Pick(call), nil
}

// WeightSource is what weights are computed from.
type WeightSource string

// The sources of weights.
const (
	// WeightsFromLoads are computed from the loads that endpoints report.
	WeightsFromLoads WeightSource = "loads"
	// WeightsFromEDS are load_balancing_weight of EDS.
	WeightsFromEDS WeightSource = "eds"
)

// WeightedTurn is the weight by which the chosen endpoint has its turns.
type WeightedTurn struct {
	Weight float64 `json:"weight"`
	// Share is the endpoint's part of all turns, 0 to 1.
	Share float64 `json:"share"`
	// From is what the weights are computed from: the loads that endpoints report, or
	// the endpoint weights of EDS while fewer than two have reported enough.
	From WeightSource `json:"from" swaggertype:"string" enums:"loads,eds"`
}

// Says describes the step in a sentence.
func (t *WeightedTurn) Says(s policy.EndpointStep) string {
	return fmt.Sprintf("%s, which has %.1f%% of the turns by its weight of %.4g from %s (%d excluded)",
		s.Turn(), 100*t.Share, t.Weight, t.From, s.Excluded)
}

// fullStride is the stride of the heaviest seat.
const fullStride = math.MaxUint16

// scheduler is gRPC's static stride scheduler: in a sequence of turns over the seats,
// each seat takes a part of its turns, evenly spread: its weight divided by the
// heaviest. It is immutable.
type scheduler struct {
	policy.Seats

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
func newScheduler(seats policy.Seats, weights []float64, from WeightSource) *scheduler {
	n := len(weights)
	s := &scheduler{Seats: seats, weights: weights, from: from, ends: make([]float64, n), strides: make([]uint16, n)}
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
