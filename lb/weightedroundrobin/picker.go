package weightedroundrobin

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every READY endpoint is excluded")

// picker is a photograph of the READY endpoints. Picks take them in turn, by
// weight, from a random start.
//
// The weights are no part of the photograph, as counts in flight are none: they
// change every second, and which endpoints picks reach does not. A picker for
// each change would wake all who watch the generation, and every pick that waits.
type picker struct {
	seats    []seat
	draw     func() uint64
	sequence atomic.Uint32
	// scheduler is replaced by the owner, and set before the first pick.
	scheduler atomic.Pointer[scheduler]
}

type seat struct {
	subConn  balancer.SubConn
	endpoint *resource.Endpoint
	load     *load
}

// newPicker returns a picker without weights. wake is called with the first
// report of an endpoint.
func newPicker(set *policy.EndpointSet[load], wake func(), draw func() uint64) *picker {
	p := &picker{seats: make([]seat, 0, set.Census.Ready), draw: draw}
	for _, m := range set.Order {
		if m.State != connectivity.Ready {
			continue
		}
		if m.Own.wake == nil {
			m.Own.wake = wake
		}
		p.seats = append(p.seats, seat{m.SubConn, m.Value, &m.Own})
	}
	p.sequence.Store(uint32(draw()))
	return p
}

// weigh gives the picker the weights of now. It tells whether they may be others
// later, without a load being reported for the first time.
func (p *picker) weigh(now time.Time, c resource.WeightedRoundRobin) (reported bool) {
	weights := make([]float64, len(p.seats))
	known, from := 0, policy.WeightsFromLoads
	for i := range p.seats {
		l := p.seats[i].load
		if weights[i] = l.weight(now, c); weights[i] > 0 {
			known++
		}
		reported = reported || l.last.Load() != nil
	}
	if known < 2 {
		from = policy.WeightsFromEDS
		for i := range p.seats {
			weights[i] = float64(max(1, p.seats[i].endpoint.Weight))
		}
	}
	s := newScheduler(p.seats, weights, from)
	for i := range p.seats {
		p.seats[i].load.share = s.weights[i] / s.sum
	}
	p.scheduler.Store(s)
	return reported
}

// Pick takes the next endpoint in turn. If the pick excludes it, one of the
// endpoints that remain is drawn, by weight. A [policy.Call] that holds reports
// the endpoint's load when it ends, any other pick when its Done is called.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	s := p.scheduler.Load()
	i := s.next(&p.sequence)
	call, ok := policy.CallOf(info.Ctx)
	if !ok {
		l := p.seats[i].load
		return balancer.PickResult{
			SubConn: p.seats[i].subConn,
			Done:    func(info balancer.DoneInfo) { l.Finish(policy.OutcomeSuccess, info) },
		}, nil
	}
	var insteadOf *resource.Endpoint
	if call.Excludes(p.seats[i].endpoint) {
		insteadOf = p.seats[i].endpoint
		if i = call.Redraw(s, p.draw); i < 0 {
			s.trace(call, i, nil)
			return balancer.PickResult{}, errAllExcluded
		}
	}
	call.Endpoint = p.seats[i].endpoint
	if call.Hold {
		call.OnFinish(p.seats[i].load)
	}
	s.trace(call, i, insteadOf)
	return balancer.PickResult{SubConn: p.seats[i].subConn}, nil
}

// trace records the choice of the seat at index, or of none for -1.
func (s *scheduler) trace(call *policy.Call, index int, insteadOf *resource.Endpoint) {
	if call.Trace == nil {
		return
	}
	step := policy.EndpointStep{
		Policy: policy.WeightedRoundRobin, Rotation: len(s.seats), Index: index,
		Excluded: call.CountExcluded(s), InsteadOf: insteadOf, Endpoint: call.Endpoint,
	}
	if index >= 0 {
		step.Turn = &policy.WeightedTurn{Weight: s.weights[index], Sum: s.sum, From: s.from}
	}
	call.Trace.Steps = append(call.Trace.Steps, step)
}
