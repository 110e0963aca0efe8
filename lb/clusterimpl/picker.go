package clusterimpl

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// million is the unit of drop chances.
const million = 1_000_000

// picker passes a pick by each drop category, then by the circuit breaker, then
// on to the child. Nothing is dropped while the child is not READY.
type picker struct {
	child    balancer.Picker
	draw     func() uint64
	ready    bool   // whether the child is
	drops    []drop // none unless it is
	counters *policy.ClusterCounters
	max      uint32
	full     *policy.Refusal
}

// Failure is the child's.
func (p *picker) Failure() error {
	return policy.FailureOf(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: p.child})
}

// drop is one category.
type drop struct {
	category   string
	perMillion uint64
	refusal    *policy.Refusal
	count      *atomic.Uint64
}

func newPicker(cfg *policy.ClusterImplConfig, counters *policy.ClusterCounters, child balancer.State, draw func() uint64) *picker {
	p := &picker{
		child:    child.Picker,
		draw:     draw,
		counters: counters,
		max:      cfg.MaxRequests,
		full: policy.NewRefusal(policy.KindCircuitBroken, "",
			fmt.Sprintf("max requests %d exceeded on service %s", cfg.MaxRequests, cfg.Service.Cluster)),
	}
	if p.ready = child.ConnectivityState == connectivity.Ready; !p.ready {
		return p
	}
	p.drops = make([]drop, len(cfg.Drops))
	for i, d := range cfg.Drops {
		p.drops[i] = drop{
			category:   d.Category,
			perMillion: d.PerMillion,
			refusal:    policy.NewRefusal(policy.KindDropped, d.Category, "RPC is dropped"),
			count:      counters.Drop(d.Category),
		}
	}
	return p
}

// Pick drops, breaks or lets the child pick. A [policy.Call] that does not hold
// only reads the breaker; any other pick counts as in flight until its Done.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call, own := policy.CallOf(info.Ctx)
	for i := range p.drops {
		d := &p.drops[i]
		n, _ := bits.Mul64(p.draw(), million)
		dropped := n < d.perMillion
		if own && call.Trace != nil {
			call.Trace.Steps = append(call.Trace.Steps, policy.DropStep{
				Category: d.category, PerMillion: d.perMillion, Draw: n, Dropped: dropped,
			})
		}
		if dropped {
			d.count.Add(1)
			return balancer.PickResult{}, d.refusal
		}
	}

	hold := !own || call.Hold
	if own && call.Trace != nil {
		inFlight := p.counters.Breaker.InFlight()
		call.Trace.Steps = append(call.Trace.Steps, policy.BreakerStep{
			InFlight: inFlight, Max: p.max, Refused: inFlight >= int64(p.max),
		})
	}
	if hold && !p.counters.Hold(p.max) || !hold && p.counters.Breaker.InFlight() >= int64(p.max) {
		p.counters.Breaker.Reject()
		return balancer.PickResult{}, p.full
	}

	if own && hold {
		call.HoldBreaker(p.counters) // at once: a child that panics must not keep it
	}
	res, err := p.child.Pick(info)
	if err != nil {
		if hold {
			p.counters.Unhold()
		}
		if own {
			call.HoldBreaker(nil)
		}
		p.unplaced()
		return res, err
	}
	sc, ok := res.SubConn.(*subConn)
	if !ok { // a policy below made its own; grpc's contract lets it
		p.unplaced()
		return p.finish(call, own, hold, res, nil)
	}
	address, ready := sc.Ready()
	if !ready { // lost since the picker was made: the next picker knows
		if res.Done != nil {
			res.Done(balancer.DoneInfo{})
		}
		if own {
			call.GiveUp()
		} else {
			p.counters.Unhold()
		}
		p.unplaced()
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	endpoint := sc.endpoint
	if own && call.Endpoint != nil {
		endpoint = call.Endpoint
	}
	load := sc.load(endpoint, p.counters)
	if own {
		call.Endpoint, call.Address, call.Load = endpoint, address, load
	}
	res.SubConn = sc.SubConn
	return p.finish(call, own, hold, res, load)
}

// unplaced counts a pick that was let pass and that no locality counts.
func (p *picker) unplaced() {
	if p.ready {
		p.counters.Unplaced()
	}
}

// finish counts the pick, and leaves what it holds with the call, or with Done
// where the context is not lbd's.
func (p *picker) finish(call *policy.Call, own, hold bool, res balancer.PickResult, load *policy.LocalityLoad) (balancer.PickResult, error) {
	if load != nil {
		load.Start(hold)
	}
	if !own {
		res.Done = done(p.counters, load, res.Done)
		return res, nil
	}
	if hold {
		call.HoldLoad(load)
		call.HoldDone(res.Done)
	} else if res.Done != nil {
		res.Done(balancer.DoneInfo{}) // nobody will tell its end
	}
	res.Done = nil
	return res, nil
}

// done gives back what a pick without Call holds.
func done(counters *policy.ClusterCounters, load *policy.LocalityLoad, inner func(balancer.DoneInfo)) func(balancer.DoneInfo) {
	var call policy.Call
	call.HoldBreaker(counters)
	call.HoldLoad(load)
	call.HoldDone(inner)
	held := call.Held()
	return func(info balancer.DoneInfo) {
		outcome := policy.OutcomeSuccess
		if info.Err != nil {
			outcome = policy.OutcomeError
		}
		held.Finish(outcome, info)
	}
}
