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
	s := newScheduler(weights, from)
	for i := range p.seats {
		p.seats[i].load.share = s.weights[i] / s.sum
	}
	p.scheduler.Store(s)
	return reported
}

// Pick takes the next endpoint in turn. Where the pick excludes it, one of those
// that it does not exclude is drawn, by weight. A [policy.Call] that holds
// reports the endpoint's load with its end, any other pick with its Done.
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
	excluded := 0
	if len(call.Exclude) > 0 && call.Excludes(p.seats[i].endpoint) {
		if i, excluded = p.other(call, s); i < 0 {
			if call.Trace != nil {
				call.Trace.Steps = append(call.Trace.Steps, policy.EndpointStep{
					Policy: policy.WeightedRoundRobin, Rotation: len(p.seats), Index: -1, Excluded: excluded,
				})
			}
			return balancer.PickResult{}, errAllExcluded
		}
	}
	call.Endpoint = p.seats[i].endpoint
	if call.Hold {
		call.OnFinish(p.seats[i].load)
	}
	if call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, policy.EndpointStep{
			Policy: policy.WeightedRoundRobin, Rotation: len(p.seats), Index: i, Excluded: excluded, Endpoint: call.Endpoint,
			Turn: &policy.WeightedTurn{Weight: s.weights[i], Sum: s.sum, From: s.from},
		})
	}
	return balancer.PickResult{SubConn: p.seats[i].subConn}, nil
}

// other draws a seat that call does not exclude, by weight; -1 where it excludes
// all. The next one in turn would not do: all the turns of a heavy endpoint would
// go to its neighbour.
func (p *picker) other(call *policy.Call, s *scheduler) (i, excluded int) {
	var sum float64
	for j := range p.seats {
		if call.Excludes(p.seats[j].endpoint) {
			excluded++
		} else {
			sum += s.weights[j]
		}
	}
	i = -1
	left := float64(p.draw()>>11) / (1 << 53) * sum
	for j := range p.seats {
		if call.Excludes(p.seats[j].endpoint) {
			continue
		}
		i = j
		if left -= s.weights[j]; left < 0 {
			break
		}
	}
	return i, excluded
}
