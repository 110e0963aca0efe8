package picks

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks/handover"
	"github.com/lbd-dev/lbd/service/picks/wheel"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/xds/wake"
)

const (
	// DefaultMaxLeases is the default limit on held leases.
	DefaultMaxLeases = 1_000_000
	// MaxEndedLeases is how many ended leases are remembered, so that a repeated done
	// gets the same answer.
	MaxEndedLeases = 65_536
	// LeaseBytes is what a lease counts of the quota of bytes, besides the name of its owner.
	LeaseBytes = 512

	// expireAtOnce is the maximum number of leases that expire under one lock, so that
	// picks do not wait for long.
	expireAtOnce = 256
)

// errUnfinished is what a foreign policy receives for a request that failed or was
// abandoned.
var errUnfinished = errors.New("the request failed")

// leases has the held leases. A lease ends once: only the caller that ends it in its shard
// releases what it holds.
//
// One goroutine ends those that expire. It sleeps while no lease is held.
type leases struct {
	max    int64
	eased  func(*ledger.Record) // called after each lease that ended
	clock  clock
	count  atomic.Int64
	shards [leaseShards]leaseShard
	keys   idempotencyKeys

	handover  *handover.File[handedLease] // to the next process; nil for none. Fixed before the first pick
	leaveWait time.Duration               // for it; fixed before the first pick

	closed  atomic.Bool
	begun   wake.One // the first lease, or key, of a quiet time
	closing chan struct{}
	done    chan struct{} // closed when the goroutine has ended
}

func newLeases(limit int, replica ReplicaTag, eased func(*ledger.Record)) *leases {
	ls := &leases{
		max: int64(limit), eased: eased,
		begun: wake.NewOne(), closing: make(chan struct{}), done: make(chan struct{}),
	}
	ls.clock.init()
	for i := range ls.shards {
		ls.shards[i].init(i, replica)
	}
	ls.keys.held = ls.heldUntil
	ls.keys.init(ls.clock.begun)
	go ls.expireUntilClosed()
	return ls
}

// grantsInRow is how many picks into one answer use the same shard one after the other. The slots of a
// shard that were free longest are next to each other, so a processor loads them before they are used; and
// goroutines that grant at the same time rarely use the same shard.
const grantsInRow = 128

// grant makes a lease of what call holds, and sets l. If it fails, call holds nothing.
func (ls *leases) grant(c *ledger.Cluster, call *call, r *Request, share float64, l *Lease) *fault.Error {
	owner, refused := ls.acquire(c, r, share)
	if refused != nil {
		call.Held().Finish(policy.OutcomeExpired, balancer.DoneInfo{Err: errUnfinished})
		return refused
	}
	var leaf *ledger.OwnerLeases
	if name := call.Leaf(); name != "" && name != c.Name {
		leaf = c.LeasesOf(name).BeginThrough(owner.Owner)
	}
	sh := &ls.shards[call.picks/grantsInRow%leaseShards]
	now := ls.clock.now()
	expires := now.add(r.TTL)
	l.ExpiresAt = shown(expires.unix)
	sh.mu.Lock()
	closed := ls.closed.Load() // close would miss it
	if !closed {
		s := sh.grant(&l.ID, now, expires)
		s.record, s.owner, s.leaf, s.account = c.Record, owner, leaf, r.Account
		call.KeepHeld(&s.held)
		s.address, s.target, s.priority = call.Address, c.Target.Label, int32(call.Priority)
	}
	sh.mu.Unlock()
	if closed {
		call.Held().Finish(policy.OutcomeExpired, balancer.DoneInfo{Err: errUnfinished})
		ls.releaseQuotas(&holding{owner: owner, leaf: leaf, account: r.Account})
		return fault.Errorf(fault.ShuttingDown, "the daemon is shutting down")
	}
	ls.begun.Wake()
	return nil
}

// acquire counts a lease against the limit on all leases, the quotas of the caller and the
// owner's share of the cluster. releaseQuotas reverts it.
func (ls *leases) acquire(c *ledger.Cluster, r *Request, share float64) (*ledger.OwnerLeases, *fault.Error) {
	if ls.count.Add(1) > ls.max {
		ls.count.Add(-1)
		return nil, limited("lease limit reached (%d)", ls.max)
	}
	if err := acquireQuotas(r.Account, r.Owner); err != nil {
		ls.count.Add(-1)
		return nil, limited("%v", err)
	}
	limit := maxLeases(c, share)
	if owner := c.Totals.Leases.Begin(r.Owner, limit); owner != nil {
		return owner, nil
	}
	releaseQuotas(r.Account, r.Owner)
	ls.count.Add(-1)
	return nil, limited("%v holds %d leases of the cluster, as many as max_lease_share permits", r.Owner, limit)
}

func limited(format string, args ...any) *fault.Error {
	return fault.Errorf(fault.RateLimited, format, args...).Retry(time.Second)
}

// maxLeases returns how many leases of a cluster one owner may hold: its share of the circuit
// breakers of the leaves; 0 for no limit.
func maxLeases(c *ledger.Cluster, share float64) int64 {
	if c.MaxLeaseShare > 0 {
		share = c.MaxLeaseShare
	}
	if share == 0 {
		return 0
	}
	requests := 0.0
	for _, leaf := range c.Leaves {
		requests += float64(leaf.Cluster.MaxRequests)
	}
	return max(1, int64(math.Ceil(share*requests)))
}

// leaseBytes is what a lease of an owner counts of the quota of bytes.
func leaseBytes(o ledger.Owner) int64 { return LeaseBytes + int64(len(o.Name)) }

func acquireQuotas(a *quota.Account, o ledger.Owner) error {
	if err := a.Acquire(quota.Leases, 1); err != nil {
		return err
	}
	if err := a.Acquire(quota.Bytes, leaseBytes(o)); err != nil {
		a.Release(quota.Leases, 1)
		return err
	}
	return nil
}

func releaseQuotas(a *quota.Account, o ledger.Owner) {
	a.Release(quota.Leases, 1)
	a.Release(quota.Bytes, leaseBytes(o))
}

// releaseQuotas reverts acquire, and ends the count of the leaf.
func (ls *leases) releaseQuotas(h *holding) {
	if h.leaf != nil {
		h.leaf.EndThrough()
	}
	h.owner.End()
	releaseQuotas(h.account, h.owner.Owner)
	ls.count.Add(-1)
}

// expireUntilClosed ends the leases that expire, and forgets the idempotency keys.
func (ls *leases) expireUntilClosed() {
	defer close(ls.done)
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	batch := make([]holding, 0, expireAtOnce)
	for {
		if ls.count.Load() == 0 && ls.keys.empty() {
			select {
			case <-ls.begun:
			case <-ls.closing:
				return
			}
		}
		tick.Reset(wheel.Tick)
		select {
		case <-tick.C:
		case <-ls.closing:
			return
		}
		for i := range ls.shards {
			for more := true; more; {
				batch, more = ls.shards[i].expired(batch[:0], ls.clock.now())
				ls.releaseAll(batch, Expired)
				if more {
					runtime.Gosched() // picks first
				}
			}
		}
		ls.keys.expire()
	}
}

// expired ends leases whose time has come, at most expireAtOnce, and appends what they held to
// batch: the caller releases it. more reports whether there are others.
func (sh *leaseShard) expired(batch []holding, now instant) (_ []holding, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	more = sh.timers.Advance(now.elapsed, expireAtOnce, func(number uint32) {
		batch = append(batch, holding{})
		sh.end(number, sh.slots.At(number), expiredNumber, now, &batch[len(batch)-1])
	})
	return batch, more
}

// release releases what a lease held, after it was ended in its shard. load may be nil.
func (ls *leases) release(h *holding, o Outcome, load *Load) {
	info := policy.NoInfo
	if o != Success {
		info.Err = errUnfinished
	}
	if load != nil {
		info.ServerLoad = load.report()
	}
	h.held.Finish(o, info)
	h.record.Totals.Outcomes.Add(o)
	ls.releaseQuotas(h)
	ls.eased(h.record)
}

// releaseAll releases what leases held, and forgets it.
func (ls *leases) releaseAll(batch []holding, o Outcome) {
	for i := range batch {
		ls.release(&batch[i], o, nil)
		batch[i] = holding{}
	}
}

// close ends every lease as expired.
func (ls *leases) close() {
	if ls.closed.Swap(true) {
		<-ls.done
		return
	}
	close(ls.closing)
	<-ls.done
	if ls.handover != nil {
		ls.leave()
	}
	ls.endAll(&LeaseFilter{}, Expired)
}

// UnknownLease returns the error of a request for a lease that is not known.
func UnknownLease(id string) error {
	return fault.Errorf(fault.UnknownLease, "lease %q not found: it never existed, ended long ago, or the daemon was restarted", id)
}

// use locks the shard of a lease and calls f with its slot, unless the lease is not known. A lease
// whose time has come has ended then.
func (ls *leases) use(id *LeaseID, now instant, f func(sh *leaseShard, s *leaseSlot)) error {
	if int(id.shard) >= leaseShards {
		return UnknownLease(id.String())
	}
	sh := &ls.shards[id.shard]
	sh.mu.Lock()
	s := sh.find(id)
	if s == nil {
		sh.mu.Unlock()
		return UnknownLease(id.String())
	}
	var late holding
	due := sh.endDue(id.slot, s, now, &late)
	f(sh, s)
	sh.mu.Unlock()
	if due {
		ls.release(&late, Expired, nil)
	}
	return nil
}

// heldUntil returns when a lease expires, and reports whether it is held. It ends no lease.
func (ls *leases) heldUntil(id *LeaseID) (expires instant, ok bool) {
	sh := &ls.shards[id.shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.find(id)
	if s == nil || s.outcome != 0 || int64(ls.clock.now().elapsed) >= s.end {
		return instant{}, false
	}
	return instant{s.expires, time.Duration(s.end)}, true
}

// EndLease ends a lease with an outcome and the upstream's load, which may be nil. For a
// lease that has ended, it returns how it ended. It does not end a lease if the load is
// invalid. Without a load, it allocates nothing.
func (s *Picker) EndLease(id LeaseID, o Outcome, load *Load) (state LeaseState, err error) {
	if load != nil {
		if err := load.check(); err != nil {
			return LeaseState{}, err
		}
	}
	var h holding
	now := s.leases.clock.now()
	err = s.leases.use(&id, now, func(sh *leaseShard, slot *leaseSlot) {
		if slot.outcome == 0 {
			sh.end(id.slot, slot, outcomeNumber(o), now, &h)
		}
		sh.describe(&state, id.slot, slot)
	})
	if h.record != nil {
		s.leases.release(&h, o, load)
		if t := h.record.Target; o == Unreachable && t != nil { // nil for a lease of the process before
			t.Channel.Use(h.record.Name, []*policy.Usage{{Address: state.Address, ConnectFailures: 1}})
		}
	}
	return state, err
}

// countersOf returns those of a held lease that is none of a limit of the fleet, or nil.
func (ls *leases) countersOf(id *LeaseID) (c *policy.ClusterCounters) {
	_ = ls.use(id, ls.clock.now(), func(_ *leaseShard, slot *leaseSlot) { // an error is that of the caller's next use
		if slot.outcome == 0 && slot.held.Shared() == nil {
			c = slot.held.Counters()
		}
	})
	return c
}

// RenewsAtOnce reports whether RenewLease does not wait for the disk.
func (s *Picker) RenewsAtOnce(id LeaseID, ttl time.Duration) bool {
	return s.leases.handover == nil || s.leases.handover.Covers(s.leases.countersOf(&id), ttl)
}

// RenewLease makes a held lease expire ttl from now.
func (s *Picker) RenewLease(ctx context.Context, id LeaseID, ttl time.Duration) (state LeaseState, err error) {
	if h := s.leases.handover; h != nil {
		if err := h.Raise(ctx, s.leases.countersOf(&id), 0, ttl); err != nil {
			return LeaseState{}, fault.FromContext(err)
		}
	}
	now := s.leases.clock.now()
	var shared *policy.SharedLimit
	var admission policy.Admission
	err = s.leases.use(&id, now, func(sh *leaseShard, slot *leaseSlot) {
		if slot.outcome == 0 {
			if shared = slot.held.Shared(); shared != nil {
				shared.Ask(ttl)
				admission = shared.Admits(ttl, policy.Clock())
			}
			if admission == policy.Admitted {
				sh.renew(id.slot, slot, now, now.add(ttl))
			}
		}
		sh.describe(&state, id.slot, slot)
	})
	if shared != nil && admission == policy.Admitted {
		admission = shared.Admits(0, policy.Clock()) // the renewal is not answered later
	}
	if admission != policy.Admitted {
		return LeaseState{}, notAdmitted(admission).Of(state.Cluster, "")
	}
	if err == nil && state.Outcome != "" {
		return LeaseState{}, fault.Errorf(fault.UnknownLease, "lease %q has ended (%s) and cannot be renewed", id, state.Outcome).Of(state.Cluster, "")
	}
	return state, err
}

// Lease returns what a lease holds, or how it ended.
func (s *Picker) Lease(id LeaseID) (state LeaseState, err error) {
	err = s.leases.use(&id, s.leases.clock.now(), func(sh *leaseShard, slot *leaseSlot) { sh.describe(&state, id.slot, slot) })
	return state, err
}
