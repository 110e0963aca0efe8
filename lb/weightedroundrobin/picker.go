package weightedroundrobin

import (
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
	seats    seats
	draw     func() uint64
	sequence atomic.Uint32
	// scheduler is set before the first pick.
	scheduler atomic.Pointer[scheduler]
}

type seats = policy.Seats[load]

// newPicker returns a picker without weights. wake is called with an endpoint's first
// report.
func newPicker(seats seats, wake func(), draw func() uint64) *picker {
	p := &picker{seats: seats, draw: draw}
	for _, s := range seats {
		if s.Own.wake == nil {
			s.Own.wake = wake
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
	for i := range p.seats {
		l := p.seats[i].Own
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
	for i := range p.seats {
		p.seats[i].Own.share = s.weights[i] / s.sum
	}
	p.scheduler.Store(s)
	return reported
}

// Pick takes the next endpoint in turn. If the pick excludes it, one of the others is
// drawn by weight. A pick that holds reports the endpoint's load when it ends.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	s := p.scheduler.Load()
	call := policy.CallOf(info.Ctx)
	i := call.Turn(Name, s, s.next(&p.sequence), p.draw)
	if i < 0 {
		return balancer.PickResult{}, policy.ErrAllExcluded
	}
	call.Endpoint = p.seats[i].Endpoint
	if call.Hold {
		call.OnFinish(p.seats[i].Own)
	}
	return balancer.PickResult{SubConn: p.seats[i].SubConn}, nil
}
