package ringhash

import (
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every endpoint that has not failed is excluded")

// picker is a copy of the ring and of the endpoints' states.
type picker struct {
	policy.Failed

	ring       ring
	seats      []seat
	connecting bool // an endpoint is
	draw       func() uint64
	policy     *ringHash // to ask for connections
}

// seat is one endpoint.
type seat struct {
	*policy.Upstream

	member *member // only to ask for its connection
	state  connectivity.State
	err    error // the last connection error
}

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
	call.Unhashed = drawn
	if drawn {
		hash = call.Draw(p.draw)
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
		if call.Excludes(s.Endpoint) {
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
		return f.seat.Pick(call), nil
	case f.seat.state == connectivity.TransientFailure:
		return balancer.PickResult{}, f.seat.err
	default:
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
}

// RingWalk is the way from where the hash fell on the ring to the endpoint.
type RingWalk struct {
	// Hash is the request's, 16 hexadecimal digits.
	Hash string `json:"hash"`
	// Drawn means that the request has no hash, and a random one is used.
	Drawn bool `json:"drawn"`
	// Entry is the index of the ring entry that the hash fell on.
	Entry int `json:"entry"`
	// Size is the number of entries of the ring.
	Size int `json:"size"`
	// Walked is the number of entries that were passed over from there: their endpoints
	// are excluded, or cannot be chosen in their state.
	Walked int `json:"walked"`
	// State is the endpoint's. A pick waits for one that is IDLE or CONNECTING.
	State string `json:"state,omitempty" enums:"READY,IDLE,CONNECTING,TRANSIENT_FAILURE"`
}

// Says describes the step in a sentence.
func (w *RingWalk) Says(s policy.EndpointStep) string {
	whose := "the request's hash"
	if w.Drawn {
		whose = "a random hash"
	}
	says := fmt.Sprintf("%s: %s %s maps to entry %d of %d", s.Policy, whose, w.Hash, w.Entry, w.Size)
	if s.Endpoint == nil {
		return says + fmt.Sprintf("; every endpoint that has not failed is excluded (%d)", s.Excluded)
	}
	return says + fmt.Sprintf("; used the endpoint %d entries later, %s, which is %s (%d skipped as excluded)", w.Walked, s.Endpoint.Addresses[0], w.State, s.Excluded)
}

// trace records the walk and its result.
func (p *picker) trace(call *policy.Call, hash uint64, drawn bool, f found) {
	n := len(p.ring)
	met := make(map[int32]bool)
	for i := range f.walked {
		if seat := p.ring[(f.start+i)%n].seat; call.Excludes(p.seats[seat].Endpoint) {
			met[seat] = true
		}
	}
	step := policy.EndpointStep{
		Policy: Name, Rotation: len(p.seats), Index: -1, Excluded: len(met),
	}
	walk := &RingWalk{Hash: fmt.Sprintf("%016x", hash), Drawn: drawn, Entry: f.start, Size: n, Walked: f.walked}
	step.Detail = walk
	if f.seat != nil {
		step.Index = int(p.ring[(f.start+f.walked)%n].seat)
		step.Endpoint, walk.State = f.seat.Endpoint, f.seat.state.String()
	}
	call.Trace.Steps = append(call.Trace.Steps, step)
	if f.seat == nil {
		return
	}
	switch f.seat.state {
	case connectivity.Ready:
	case connectivity.TransientFailure:
		call.Trace.Steps = append(call.Trace.Steps, policy.FailureStep{Err: f.seat.err})
	default:
		call.Trace.Steps = append(call.Trace.Steps, policy.QueueStep{})
	}
}
