package ringhash

import (
	"fmt"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

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
		if seat := p.ring[(f.start+i)%n].seat; call.Excludes(p.seats[seat].endpoint) {
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
		step.Endpoint, walk.State = f.seat.endpoint, f.seat.state.String()
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
