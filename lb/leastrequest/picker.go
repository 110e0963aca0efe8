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
		step = &policy.EndpointStep{Policy: policy.LeastRequest, Rotation: len(p.seats), Index: -1, Excluded: call.CountExcluded(p)}
		defer func() { call.Trace.Steps = append(call.Trace.Steps, *step) }()
	}
	best := -1
	var fewest int64
	for range p.choices {
		i := p.drawn(call)
		if i < 0 {
			return balancer.PickResult{}, errAllExcluded
		}
		n := p.seats[i].inFlight.n.Load()
		if best < 0 || n < fewest {
			best, fewest = i, n
		}
		if step != nil {
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

// drawn draws a seat; if call excludes it, one of the seats that remain. It
// returns -1 if call excludes all.
func (p *picker) drawn(call *policy.Call) int {
	i := p.At(p.draw())
	if call != nil && call.Excludes(p.seats[i].endpoint) {
		return call.Redraw(p, p.draw)
	}
	return i
}

// Len returns the number of READY endpoints.
func (p *picker) Len() int { return len(p.seats) }

// Endpoint returns the endpoint at an index.
func (p *picker) Endpoint(i int) *resource.Endpoint { return p.seats[i].endpoint }

// Weight returns 1: least_request draws every endpoint with the same chance.
func (p *picker) Weight(int) float64 { return 1 }

// At maps a draw to an index, with the same chance for each.
func (p *picker) At(draw uint64) int {
	i, _ := bits.Mul64(draw, uint64(len(p.seats)))
	return int(i)
}
