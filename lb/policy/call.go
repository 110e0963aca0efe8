package policy

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Call is one pick. It is the Ctx of the pick's [balancer.PickInfo]: it carries
// what is asked down the pickers, and what they took for it back up. Own
// pickers find it with [CallOf], write what they took into it and return no
// Done; the one who asked gives everything back through [Call.Held].
//
// A Call belongs to one goroutine. It may be used again after [Call.Reset].
type Call struct {
	context.Context

	// What is asked.

	// Cluster is the cluster that the route chose.
	Cluster string
	// Hash is the request hash, for policies that hash.
	Hash uint64
	// Hold makes the pick count as in flight until its [Held] is finished.
	// Without it the circuit breaker is read only.
	Hold bool
	// WaitForReady queues the pick in TRANSIENT_FAILURE too.
	WaitForReady bool
	// Exclude holds addresses to avoid, any of an endpoint's.
	Exclude []string
	// Trace, where not nil, takes down every step of the decision.
	Trace *Trace

	// What the pickers took.

	// Endpoint is the endpoint picked.
	Endpoint *resource.Endpoint
	// Address is the address of Endpoint that is connected.
	Address string
	// Priority is the priority that Endpoint was picked from.
	Priority int

	// Load counts the picks of Endpoint's locality.
	Load *LocalityLoad
	// Generation is that of the picker that answered.
	Generation int64
	// Queued is how long the pick waited for a picker that could answer; zero
	// for a pick that did not.
	Queued time.Duration

	held Held
}

// CallOf returns the Call that ctx is, if it is one.
func CallOf(ctx context.Context) (*Call, bool) {
	c, ok := ctx.(*Call)
	return c, ok
}

// Reset makes c a new call within ctx that asks nothing yet.
func (c *Call) Reset(ctx context.Context) { *c = Call{Context: ctx, Exclude: c.Exclude[:0]} }

// Again clears what the pickers took, so that the Call can be asked again.
func (c *Call) Again() {
	c.Endpoint = nil
	c.Address = ""
	c.Priority = 0
	c.Load = nil
	c.held = Held{}
	if c.Trace != nil {
		c.Trace.Steps = c.Trace.Steps[:0]
	}
}

// Excludes reports whether the pick avoids e: whether any of its addresses is
// excluded.
func (c *Call) Excludes(e *resource.Endpoint) bool {
	for _, x := range c.Exclude {
		if slices.Contains(e.Addresses, x) {
			return true
		}
	}
	return false
}

// HoldBreaker notes that the pick holds one request of c's breaker. The picker
// that took it with [ClusterCounters.Hold] calls this.
func (c *Call) HoldBreaker(cc *ClusterCounters) { c.held.counters = cc }

// HoldLoad notes where the pick's load is counted.
func (c *Call) HoldLoad(l *LocalityLoad) { c.held.load = l }

// HoldDone notes a Done that a foreign policy wants to be called.
func (c *Call) HoldDone(done func(balancer.DoneInfo)) { c.held.done = done }

// Held returns what the pick holds until it is finished. It is valid after the
// Call is used again.
func (c *Call) Held() Held { return c.held }

// Outcome is how a request ended, as its caller told.
type Outcome uint8

// The outcomes of a held pick.
const (
	// OutcomeSuccess is a request that went well.
	OutcomeSuccess Outcome = iota
	// OutcomeError is a request that failed.
	OutcomeError
	// OutcomeCancelled is a request that its caller gave up. Load reports
	// count it as an error.
	OutcomeCancelled
	// OutcomeExpired is a request that nobody told the end of. It leaves the
	// in-flight counts and is neither a success nor an error.
	OutcomeExpired
)

// Held is what one pick holds: a request of the circuit breaker, a place in
// its locality's load, a foreign policy's Done. The zero Held holds nothing.
type Held struct {
	counters *ClusterCounters
	load     *LocalityLoad
	done     func(balancer.DoneInfo)
}

// Finish gives back what is held. It must be called exactly once.
func (h Held) Finish(outcome Outcome, info balancer.DoneInfo) {
	if h.done != nil {
		h.done(info)
	}
	if h.load != nil {
		h.load.finish(outcome)
	}
	if h.counters != nil {
		h.counters.Unhold()
	}
}

// NoInfo is the DoneInfo of a request of which nothing more is known.
var NoInfo balancer.DoneInfo
