package policy

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Call is one pick, and the Ctx of its [balancer.PickInfo]: it carries the request
// down the pickers and the result back up. lbd's pickers get it with [CallOf], and
// return no Done: the caller finishes what [Call.Held] returns.
//
// A Call belongs to one goroutine. It may be used again after [Call.Reset].
type Call struct {
	context.Context

	// The request.

	// Cluster is chosen by the caller or by the target's routes.
	Cluster string
	// Path and Headers are matched by the target's routes; header names are in lower
	// case.
	Path    string
	Headers []resource.Header
	// Hash is the request hash if HasHash: the caller's, or else the route's.
	Hash    uint64
	HasHash bool
	// Hold counts the pick as in flight until its [Held] is finished. Without it, the
	// pick only reads the circuit breaker.
	Hold bool
	// Reported means that the caller reports the request later: a pick that does not hold does not count
	// in the load.
	Reported bool
	// WaitForReady queues the pick in TRANSIENT_FAILURE.
	WaitForReady bool
	// Exclude has addresses to avoid; one of an endpoint's is enough. They are compared as they are written.
	Exclude []string
	// Trace records every step of the decision, if not nil.
	Trace *Trace
	// Source has the random numbers of the pick, which belong to the Call. Without one,
	// pickers draw from the tree's, which all goroutines share.
	Source *rand.PCG
	// Canceled ends the wait of the pick when it is closed, as the Context does; nil for never.
	Canceled <-chan struct{}

	// The result.

	Endpoint *resource.Endpoint
	// Address is the connected address of Endpoint.
	Address  string
	Priority int

	// Upstream is what was picked, and Load counts the picks of its locality. Both are nil
	// if a policy that is not lbd's has made a SubConn of its own.
	Upstream *Upstream
	Load     *LocalityLoad
	// Unhashed means that the policy has drawn a hash, because the request has none.
	Unhashed bool
	// Generation is the number of the picker that answered.
	Generation int64
	// Waiter is asked before the pick waits; nil permits it.
	Waiter Waiter
	// Queued is how long the pick waited for a picker that could answer.
	Queued time.Duration

	held   Held
	spread spread
	// routed: Hash is the route's.
	routed bool
}

// Waiter limits the picks that wait.
type Waiter interface {
	// BeginWait returns an error if the pick must not wait. EndWait ends a wait.
	BeginWait() error
	EndWait()
}

// CallOf returns the Call that ctx is. For any other context, which a policy that is
// not lbd's may use, it returns a Call that holds nothing.
func CallOf(ctx context.Context) *Call {
	if c, ok := ctx.(*Call); ok {
		return c
	}
	return &Call{Context: ctx}
}

// Reset makes c a new call within ctx, with the same Source.
func (c *Call) Reset(ctx context.Context) {
	*c = Call{Context: ctx, Exclude: c.Exclude[:0], Source: c.Source}
}

// Draw returns a uniform random number: what is left of the place of a pick with [Call.Spread], else one of
// c's Source, or of the tree's. A caller that draws twice calls Took in between.
func (c *Call) Draw(tree func() uint64) uint64 {
	if c.spread.on {
		return c.spread.point
	}
	return c.Random(tree)
}

// Spread makes the pick one of a batch whose places are evenly spaced in [0, 2^64): then every locality,
// endpoint and drop category gets its share of the batch within one pick (systematic sampling), while the
// chances of a single pick remain as they are. It holds until Reset.
//
// The place is the only random number of the pick: each weighted choice takes the part that the place is in,
// and the choices after it use the place within that part.
func (c *Call) Spread(place uint64) { c.spread = spread{on: true, place: place, point: place} }

// Even reports whether the pick is one of a batch with Spread.
func (c *Call) Even() bool { return c.spread.on }

// Took records that a number of Draw, mapped to [0, of), has chosen [from, to).
func (c *Call) Took(from, to, of uint64) { c.spread.took(from, to, of) }

// TookRoute is Took for the routes of a target, which choose once for all pickers of a pick that waits.
func (c *Call) TookRoute(from, to, of uint64) {
	c.spread.took(from, to, of)
	c.spread.place = c.spread.point
}

// Random returns a random number that does not depend on the other picks of a batch.
func (c *Call) Random(tree func() uint64) uint64 {
	if c.Source != nil {
		return c.Source.Uint64()
	}
	return tree()
}

// RouteHash sets the route's request hash, until Again.
func (c *Call) RouteHash(hash uint64) { c.Hash, c.HasHash, c.routed = hash, true, true }

// Again clears the result and the route's request hash, for another pick.
func (c *Call) Again() {
	if c.routed {
		c.Hash, c.HasHash, c.routed = 0, false, false
	}
	c.forget(0)
}

// Repick clears the result, but not what routes have chosen, for another picker.
func (c *Call) Repick() {
	kept := 0
	if c.Trace != nil && len(c.Trace.Steps) > 0 {
		if _, ok := c.Trace.Steps[0].(RouteStep); ok {
			kept = 1
		}
	}
	c.forget(kept)
}

// forget clears the result, and all but the first steps of the trace.
func (c *Call) forget(kept int) {
	c.Endpoint, c.Address, c.Priority, c.Upstream, c.Load = nil, "", 0, nil, nil
	c.held, c.Unhashed = Held{}, false
	if c.spread.point = c.spread.place; c.Trace != nil {
		c.Trace.Steps = c.Trace.Steps[:kept]
	}
}

// Excludes reports whether the pick avoids e.
func (c *Call) Excludes(e *resource.Endpoint) bool {
	for _, x := range c.Exclude {
		if slices.Contains(e.Addresses, x) {
			return true
		}
	}
	return false
}

// HoldBreaker records that the pick holds one request of [ClusterCounters.Hold].
func (c *Call) HoldBreaker(cc *ClusterCounters) { c.held.counters = cc }

// HoldLoad records where the pick's load is counted.
func (c *Call) HoldLoad(l *LocalityLoad) { c.held.load = l }

// HoldDone records the Done of a policy that is not lbd's.
func (c *Call) HoldDone(done func(balancer.DoneInfo)) { c.held.done = done }

// Finisher counts the ends of held picks for a policy.
type Finisher interface {
	// Finish is called once, by any goroutine. info has the load that the upstream
	// reported, if any, as a *orcav3.OrcaLoadReport.
	Finish(outcome Outcome, info balancer.DoneInfo)
}

// MaxFinishers limits the Finishers of one pick: an endpoint policy and
// outlier_detection.
const MaxFinishers = 2

// OnFinish registers f for the end of the pick. A picker calls it for a pick that
// holds, after the picker below has picked.
func (c *Call) OnFinish(f Finisher) {
	i := 0
	for c.held.finishers[i] != nil {
		i++
	}
	c.held.finishers[i] = f
}

// GiveUp releases what a failed pick holds, neither as a success nor as an error. The
// Call can be used again.
func (c *Call) GiveUp() {
	c.held.Finish(OutcomeExpired, NoInfo)
	c.held = Held{}
	c.Endpoint, c.Address, c.Upstream, c.Load = nil, "", nil, nil
}

// Held returns what the pick holds. It remains valid when the Call is used again.
func (c *Call) Held() Held { return c.held }

// Leaf returns the cluster whose circuit breaker the pick holds a request of: that of the pick, or a leaf of an AGGREGATE.
// It is empty if the pick holds none.
func (c *Call) Leaf() string {
	if c.held.counters == nil {
		return ""
	}
	return c.held.counters.key.Cluster
}

// KeepHeld is Held for a caller that has room for it: it is copied once.
func (c *Call) KeepHeld(in *Held) { *in = c.held }

// Outcome is how a request ended, as the API and the metrics name it.
type Outcome string

// The outcomes of a held pick.
const (
	OutcomeSuccess Outcome = "success"
	OutcomeError   Outcome = "error"
	// OutcomeCancelled means that the caller canceled the request. Load reports count it as an
	// error.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeUnreachable means that the caller could not connect to the endpoint. Load reports
	// count it as an error. [Usage.ConnectFailures] is for the rest.
	OutcomeUnreachable Outcome = "unreachable"
	// OutcomeExpired means that the end is not known. It counts neither as a success nor as an
	// error.
	OutcomeExpired Outcome = "expired"
)

// Held is what one pick holds: a request of the circuit breaker, a request in progress
// of its locality, a Done. The zero Held holds nothing.
type Held struct {
	counters  *ClusterCounters
	load      *LocalityLoad
	done      func(balancer.DoneInfo)
	finishers [MaxFinishers]Finisher
}

// Finish releases it. It must be called exactly once.
func (h Held) Finish(outcome Outcome, info balancer.DoneInfo) {
	if h.done != nil {
		h.done(info)
	}
	for _, f := range h.finishers {
		if f != nil {
			f.Finish(outcome, info)
		}
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

// Shared returns the limit of the fleet that the pick holds a request of; nil if the limit is of this process.
func (h *Held) Shared() *SharedLimit {
	if h.counters == nil || !h.counters.fleetLimit.Load() {
		return nil
	}
	return h.counters.shared
}

// Counters returns those of the circuit breaker that the pick holds a request of; nil for none.
func (h *Held) Counters() *ClusterCounters { return h.counters }

// NoInfo is the DoneInfo of a request without a load report.
var NoInfo balancer.DoneInfo
