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

	// Cluster is the cluster that the caller names, or that the target's routes
	// have chosen.
	Cluster string
	// Path and Headers are what the target's routes look at; names of headers
	// are in lower case.
	Path    string
	Headers []resource.Header
	// Hash is the request hash, for policies that hash, where HasHash is true:
	// the caller's, or else the route's.
	Hash    uint64
	HasHash bool
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
	// routed is true where Hash is the route's.
	routed bool
}

// CallOf returns the Call that ctx is. For any other context, which a policy that is
// not lbd's may use, it returns a Call that holds nothing.
func CallOf(ctx context.Context) *Call {
	if c, ok := ctx.(*Call); ok {
		return c
	}
	return &Call{Context: ctx}
}

// Reset makes c a new call within ctx that asks nothing yet.
func (c *Call) Reset(ctx context.Context) { *c = Call{Context: ctx, Exclude: c.Exclude[:0]} }

// RouteHash gives a pick whose caller has no request hash the route's, until
// Again.
func (c *Call) RouteHash(hash uint64) { c.Hash, c.HasHash, c.routed = hash, true, true }

// Again clears what the pickers took and the request hash that a route made, so
// that the Call can be asked again.
func (c *Call) Again() {
	if c.routed {
		c.Hash, c.HasHash, c.routed = 0, false, false
	}
	c.forget()
	if c.Trace != nil {
		c.Trace.Steps = c.Trace.Steps[:0]
	}
}

// Repick clears what the pickers took, but not what routes have chosen, so that
// another picker can be asked for the same.
func (c *Call) Repick() {
	c.forget()
	if c.Trace == nil {
		return
	}
	kept := 0
	if len(c.Trace.Steps) > 0 {
		if _, ok := c.Trace.Steps[0].(RouteStep); ok {
			kept = 1
		}
	}
	c.Trace.Steps = c.Trace.Steps[:kept]
}

func (c *Call) forget() {
	c.Endpoint = nil
	c.Address = ""
	c.Priority = 0
	c.Load = nil
	c.held = Held{}
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

// Finisher is told of the end of a held pick: a policy's counter of what is in
// flight, or of how requests end.
type Finisher interface {
	// Finish is called once, by any goroutine. info bears the load that the
	// upstream reported, where it did, as a *orcav3.OrcaLoadReport.
	Finish(outcome Outcome, info balancer.DoneInfo)
}

// MaxFinishers is how many pickers on the way of one pick may want to be told of
// its end.
const MaxFinishers = 4

// OnFinish lets f be told of the pick's end. A picker calls it for a pick that
// holds, once the picker below it has picked; one that does not hold has no end.
// It must not be called more than MaxFinishers times for a pick.
func (c *Call) OnFinish(f Finisher) {
	c.held.finishers[c.held.finishing] = f
	c.held.finishing++
}

// GiveUp ends what pickers have taken so far, for a pick that comes to nothing:
// neither as a success nor as an error. The Call can be asked again.
func (c *Call) GiveUp() {
	c.held.Finish(OutcomeExpired, NoInfo)
	c.held = Held{}
	c.Endpoint, c.Address, c.Load = nil, "", nil
}

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
	counters  *ClusterCounters
	load      *LocalityLoad
	done      func(balancer.DoneInfo)
	finishers [MaxFinishers]Finisher
	finishing int
}

// Finish gives back what is held. It must be called exactly once.
func (h Held) Finish(outcome Outcome, info balancer.DoneInfo) {
	if h.done != nil {
		h.done(info)
	}
	for _, f := range h.finishers[:h.finishing] {
		f.Finish(outcome, info)
	}
	if h.load != nil {
		if info.ServerLoad != nil && h.counters != nil {
			h.load.record(h.counters.metrics.Load(), info.ServerLoad)
		}
		h.load.finish(outcome)
	}
	if h.counters != nil {
		h.counters.Unhold()
	}
}

// NoInfo is the DoneInfo of a request of which nothing more is known.
var NoInfo balancer.DoneInfo
