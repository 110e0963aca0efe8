package leastrequest

import (
	"math/bits"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every READY endpoint is excluded")

// inFlight counts the requests that one endpoint has in flight, through all the
// pickers that hold the endpoint, and past its removal.
type inFlight struct{ n atomic.Int64 }

// Finish takes one request off.
func (f *inFlight) Finish(policy.Outcome, balancer.DoneInfo) { f.n.Add(-1) }

// picker is a photograph of the READY endpoints. Their counts are alive.
type picker struct {
	seats   []seat
	choices uint32
	draw    func() uint64
}

type seat struct {
	subConn  balancer.SubConn
	endpoint *resource.Endpoint
	inFlight *inFlight
}

func newPicker(set *policy.EndpointSet[inFlight], choices uint32, draw func() uint64) *picker {
	p := &picker{seats: make([]seat, 0, set.Census.Ready), choices: choices, draw: draw}
	for _, m := range set.Order {
		if m.State == connectivity.Ready {
			p.seats = append(p.seats, seat{m.SubConn, m.Value, &m.Own})
		}
	}
	return p
}

// Pick draws endpoints, one perhaps several times, and takes the first of those
// with the fewest requests in flight. A [policy.Call] that does not hold is not
// counted; any other pick counts until it is finished, or its Done is called.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call, own := policy.CallOf(info.Ctx)
	var step *policy.EndpointStep
	if own && call.Trace != nil {
		step = &policy.EndpointStep{Policy: policy.LeastRequest, Rotation: len(p.seats), Index: -1}
		defer func() { call.Trace.Steps = append(call.Trace.Steps, *step) }()
	}
	best := -1
	var fewest int64
	for range p.choices {
		i, skipped := p.drawn(call)
		if i < 0 {
			if step != nil {
				step.Excluded = skipped
			}
			return balancer.PickResult{}, errAllExcluded
		}
		n := p.seats[i].inFlight.n.Load()
		if best < 0 || n < fewest {
			best, fewest = i, n
		}
		if step != nil {
			step.Excluded = max(step.Excluded, skipped)
			step.Compared = append(step.Compared, policy.EndpointInFlight{Endpoint: p.seats[i].endpoint, InFlight: n})
		}
	}
	s := &p.seats[best]
	res := balancer.PickResult{SubConn: s.subConn}
	if !own {
		s.inFlight.n.Add(1)
		res.Done = func(balancer.DoneInfo) { s.inFlight.n.Add(-1) }
		return res, nil
	}
	call.Endpoint = s.endpoint
	if call.Hold {
		s.inFlight.n.Add(1)
		call.OnFinish(s.inFlight)
	}
	if step != nil {
		step.Index, step.Endpoint = best, s.endpoint
	}
	return res, nil
}

// drawn draws a seat. Where call excludes it, the next one that it does not
// exclude stands in; -1 where it excludes all.
func (p *picker) drawn(call *policy.Call) (i, skipped int) {
	n := len(p.seats)
	hi, _ := bits.Mul64(p.draw(), uint64(n))
	i = int(hi)
	if call == nil || len(call.Exclude) == 0 {
		return i, 0
	}
	for call.Excludes(p.seats[i].endpoint) {
		if skipped++; skipped == n {
			return -1, skipped
		}
		i = (i + 1) % n
	}
	return i, skipped
}
