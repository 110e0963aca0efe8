package leastrequest

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// inFlight counts the requests of one endpoint across pickers, and after its removal.
type inFlight struct{ n atomic.Int64 }

func (f *inFlight) Finish(policy.Outcome, balancer.DoneInfo) { f.n.Add(-1) }

// picker chooses from the endpoints that were READY when it was made. Their counts are
// shared.
type picker struct {
	policy.Seats[inFlight]

	choices uint32
	draw    func() uint64
}

// Pick draws endpoints, possibly the same several times, and takes the first of those
// with the fewest requests in flight. A pick that holds counts until it is finished.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	var step *policy.EndpointStep
	if call.Trace != nil {
		step = &policy.EndpointStep{Policy: Name, Rotation: len(p.Seats), Index: -1, Excluded: call.CountExcluded(p)}
		defer func() { call.Trace.Steps = append(call.Trace.Steps, *step) }()
	}
	var compared Compared
	best := -1
	var fewest int64
	for range p.choices {
		i := p.drawn(call)
		if i < 0 {
			return balancer.PickResult{}, policy.ErrAllExcluded
		}
		n := p.Seats[i].Own.n.Load()
		if best < 0 || n < fewest {
			best, fewest = i, n
		}
		if step != nil {
			compared = append(compared, InFlight{p.Seats[i].Endpoint.Addresses[0], n})
		}
	}
	s := &p.Seats[best]
	call.Endpoint = s.Endpoint
	if call.Hold {
		s.Own.n.Add(1)
		call.OnFinish(s.Own)
	}
	if step != nil {
		step.Index, step.Endpoint, step.Detail = best, s.Endpoint, compared
	}
	return balancer.PickResult{SubConn: s.SubConn}, nil
}

// drawn draws a seat; if call excludes it, one of the others. It returns -1 if call
// excludes all.
func (p *picker) drawn(call *policy.Call) int {
	i := p.At(p.draw())
	if call.Excludes(p.Seats[i].Endpoint) {
		return call.Redraw(p, p.draw)
	}
	return i
}
