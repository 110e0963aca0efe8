package ringhash

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every endpoint that has not failed is excluded")

// picker is a copy of the ring and of the endpoints' states.
type picker struct {
	ring       ring
	seats      []seat
	connecting bool // an endpoint is
	failure    error
	draw       func() uint64
	policy     *ringHash // to ask for connections
}

// seat is one endpoint.
type seat struct {
	member   *member // only to ask for its connection
	subConn  balancer.SubConn
	endpoint *resource.Endpoint
	state    connectivity.State
	err      error // the last connection error
}

func (p *picker) Failure() error { return p.failure }

// Pick follows the ring from the request's hash.
//
// With a hash, it chooses the first endpoint that has not failed. One that is not
// READY is waited for, and connected if it is IDLE, so that the hash keeps its
// endpoint (gRFC A61). Without a hash, it chooses the first READY endpoint, and
// connects one IDLE endpoint on the way unless one is CONNECTING already (gRFC A76).
// If all have failed, the pick fails with the error of the first.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	hash, drawn := call.Hash, !call.HasHash
	if drawn {
		hash = p.draw()
	}
	f := p.walk(call, hash, drawn)
	if call.Trace != nil {
		p.trace(call, hash, drawn, f)
	}
	return p.answer(call, f)
}

// found is the result of a walk.
type found struct {
	start  int // the entry that the hash fell on
	walked int
	seat   *seat // nil where all that might be picked are excluded
}

// walk finds the endpoint of a hash, and connects it if it is IDLE.
func (p *picker) walk(call *policy.Call, hash uint64, drawn bool) found {
	n := len(p.ring)
	start := p.ring.at(hash)
	var first, wait found // the first that failed, the first to be waited for
	excluded := false     // one that has not failed
	asked := p.connecting
	for i := range n {
		s := &p.seats[p.ring[(start+i)%n].seat]
		if call.Excludes(s.endpoint) {
			excluded = excluded || s.state != connectivity.TransientFailure
			continue
		}
		here := found{start, i, s}
		switch {
		case s.state == connectivity.Ready:
			return here
		case s.state == connectivity.TransientFailure:
			if first.seat == nil {
				first = here
			}
			continue
		case wait.seat == nil:
			wait = here
		}
		if s.state == connectivity.Idle && (!drawn || !asked) {
			p.ask(s)
			asked = true
		}
		if !drawn {
			return here
		}
	}
	switch {
	case wait.seat != nil:
		return wait
	case excluded || first.seat == nil:
		return found{start: start, walked: n}
	default:
		return first
	}
}

// ask makes the owner connect an IDLE endpoint, once for all picks.
func (p *picker) ask(s *seat) {
	if s.member.Own.asked.CompareAndSwap(false, true) {
		p.policy.Conn.Post(func() { p.policy.connect(s.member) })
	}
}

func (p *picker) answer(call *policy.Call, f found) (balancer.PickResult, error) {
	switch {
	case f.seat == nil:
		return balancer.PickResult{}, errAllExcluded
	case f.seat.state == connectivity.Ready:
		call.Endpoint = f.seat.endpoint
		return balancer.PickResult{SubConn: f.seat.subConn}, nil
	case f.seat.state == connectivity.TransientFailure:
		return balancer.PickResult{}, f.seat.err
	default:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
}
