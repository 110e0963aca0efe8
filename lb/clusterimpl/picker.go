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

// picker passes a pick by each drop category, then by the circuit breaker, then on to
// the child. It drops only while the child is READY.
type picker struct {
	child    balancer.Picker
	draw     func() uint64
	ready    bool   // whether the child is
	drops    []drop // none unless it is
	counters *policy.ClusterCounters
	max      uint32
	shared   *policy.SharedLimit // of a limit of the fleet; else nil
	full     *policy.Refusal
	// In place of full, with a limit of the fleet.
	noShare, shareUsed, limitUsed *policy.Refusal
}

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

func (b *clusterImpl) picker(child balancer.State) balancer.Picker {
	cfg := b.config
	p := &picker{
		child:    child.Picker,
		draw:     b.Draw(),
		counters: b.counters,
		max:      cfg.MaxRequests,
		full: policy.NewRefusal(policy.KindCircuitBroken, "",
			fmt.Sprintf("max requests %d exceeded on service %s", cfg.MaxRequests, cfg.Service.Cluster)),
	}
	if cfg.FleetLimit {
		if p.shared = b.counters.SharedLimit(); p.shared != nil {
			refusal := func(why string) *policy.Refusal {
				return policy.NewRefusal(policy.KindCircuitBroken, "",
					fmt.Sprintf("max requests %d of the fleet exceeded on service %s: %s", cfg.MaxRequests, cfg.Service.Cluster, why))
			}
			p.noShare = refusal("this replica has no share, because it has no connection to the store of the fleet")
			p.shareUsed = refusal("this replica has used its share, and gets more from the other replicas, which do not need all of theirs")
			p.limitUsed = refusal("the replicas use all of it")
		}
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
			count:      b.counters.Drop(d.Category),
		}
	}
	return p
}

// Pick drops, breaks or lets the child pick. A pick that does not hold only reads the
// breaker.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	for i := range p.drops {
		d := &p.drops[i]
		n, _ := bits.Mul64(call.Draw(p.draw), million)
		dropped := n < d.perMillion
		if call.Trace != nil {
			call.Trace.Steps = append(call.Trace.Steps, policy.DropStep{
				Category: d.category, PerMillion: d.perMillion, Draw: n, Dropped: dropped,
			})
		}
		if dropped {
			d.count.Add(1)
			return balancer.PickResult{}, d.refusal
		}
		call.Took(d.perMillion, million, million)
	}

	limit := p.max
	if p.shared != nil {
		limit = min(limit, p.shared.Limit())
	}
	if call.Trace != nil {
		inFlight := p.counters.Breaker.InFlight()
		step := policy.BreakerStep{InFlight: inFlight, Max: p.max, Limit: limit, Refused: inFlight >= int64(limit)}
		if p.shared != nil {
			step.Shared, step.Spare = true, p.shared.State().Spare
		}
		call.Trace.Steps = append(call.Trace.Steps, step)
	}
	if call.Hold && !p.hold(call, limit) || !call.Hold && p.counters.Breaker.InFlight() >= int64(limit) {
		p.counters.Breaker.Reject()
		return balancer.PickResult{}, p.refusal()
	}
	res, err := p.child.Pick(info)
	if err != nil {
		if call.Hold {
			p.counters.Unhold()
		}
		call.HoldBreaker(nil)
		p.unplaced()
		return res, err
	}
	u := call.Upstream
	if u == nil || res.SubConn != balancer.SubConn(u.Connection) { // grpc's contract allows a policy below to make its own
		p.unplaced()
		return finish(call, res), nil
	}
	address, ready := u.Address()
	if !ready { // lost since the picker was made: the next picker knows
		if res.Done != nil {
			res.Done(balancer.DoneInfo{})
		}
		call.GiveUp()
		p.unplaced()
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	call.Address, call.Load = address, u.LoadIn(p.counters)
	if call.Hold {
		call.HoldLoad(call.Load)
	}
	if call.Hold || !call.Reported {
		call.Load.Start(call.Hold)
	}
	return finish(call, res), nil
}

// refusal says what is used up.
func (p *picker) refusal() *policy.Refusal {
	if p.shared == nil {
		return p.full
	}
	switch s := p.shared.State(); {
	case !s.Joined:
		return p.noShare
	case s.Spare > 0:
		return p.shareUsed
	default:
		return p.limitUsed
	}
}

// hold takes a request of the breaker, at once: a child that panics must not keep it.
func (p *picker) hold(call *policy.Call, limit uint32) bool {
	if !p.counters.Hold(limit) {
		return false
	}
	call.HoldBreaker(p.counters)
	if p.shared == nil {
		return true
	}
	if p.shared.Exceeded(p.counters.Breaker.InFlight()) { // the share became smaller
		p.counters.Unhold()
		call.HoldBreaker(nil)
		return false
	}
	return true
}

// finish leaves the policy's Done to the call, or calls it if the pick does not hold.
func finish(call *policy.Call, res balancer.PickResult) balancer.PickResult {
	if call.Hold {
		call.HoldDone(res.Done)
	} else if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
	res.Done = nil
	return res
}

// unplaced counts a pick that passed, but is counted in no locality.
func (p *picker) unplaced() {
	if p.ready {
		p.counters.Unplaced()
	}
}
