package picks

import (
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
)

const (
	// boundWait limits the wait until other replicas know that there may be longer leases.
	boundWait = time.Second
	// boundPoll is the time between two looks.
	boundPoll = 5 * time.Millisecond
)

// admit reports whether a lease may be granted for the request that call holds. A limit of the fleet
// permits it only before the deadline of this replica, and for a ttl that the others know; the next process
// of this daemon must know of any other one. If it fails, call holds nothing.
func (s *Picker) admit(t *ledger.Target, call *call, r *Request) *fault.Error {
	held := call.Held()
	if call.shared = held.Shared(); call.shared == nil {
		switch h, c := s.leases.handover, held.Counters(); {
		case h.Covers(c, r.TTL):
			return nil
		case r.NoWait:
			call.GiveUp()
			return wouldWait
		case h.Raise(call, c, call.wanted(t), r.TTL) != nil:
			call.GiveUp()
			return fault.Errorf(fault.CallerGone, "the caller has gone").Of(call.Cluster, "")
		}
		return nil
	}
	call.shared.Ask(r.TTL)
	a := call.shared.Admits(r.TTL, policy.Clock())
	for waited := time.Duration(0); a == policy.NotBound && !r.NoWait && waited < boundWait; waited += boundPoll {
		select {
		case <-time.After(boundPoll):
		case <-call.Done():
			waited = boundWait
		case <-s.options.Draining.Done():
			waited = boundWait
		}
		a = call.shared.Admits(r.TTL, policy.Clock())
	}
	if a == policy.Admitted {
		return nil
	}
	call.GiveUp()
	if r.NoWait && a == policy.NotBound {
		return wouldWait
	}
	return notAdmitted(a).Of(call.Cluster, "")
}

// wanted returns how many requests of its leaf, but for lost ones, will be in flight if the other picks of the request
// succeed.
func (c *call) wanted(t *ledger.Target) int64 {
	held := c.Held()
	for _, leaf := range t.Cluster(c.Cluster).Leaves {
		if l := leaf.Counters; l == held.Counters() {
			return min(l.Breaker.InFlight()+int64(c.more), int64(leaf.Cluster.MaxRequests)) - l.Ceiling.Lost()
		}
	}
	return 0
}

func notAdmitted(a policy.Admission) *fault.Error {
	if a == policy.NotBound {
		return fault.Errorf(fault.RateLimited, "the ttl is longer than any of this cluster that other replicas know: try again").Retry(time.Second)
	}
	return fault.Errorf(fault.CircuitBroken, "this replica has lost the store of the fleet, and admits no requests of its limits").Retry(time.Second)
}

// Confirm must be called after the response is ready, and before it is written. If a lease holds a request
// of a limit of the fleet, and the deadline of this replica has passed, it ends all leases of the answer
// and returns an error.
func (s *Picker) Confirm(out *Picks) error {
	for i := range out.Picks {
		p := &out.Picks[i]
		if p.shared == nil {
			continue
		}
		if p.shared.Admits(0, policy.Clock()) == policy.Admitted {
			p.shared = nil
			continue
		}
		for j := range out.Picks {
			_, _ = s.EndLease(out.Picks[j].Lease.ID, Cancelled, nil) // it may have expired
		}
		return notAdmitted(policy.Isolated).Of(p.Cluster, out.Target)
	}
	return nil
}
