package picks

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks/wheel"
	"github.com/lbd-dev/lbd/service/quota"
)

const (
	// DefaultMaxLeases is the default limit on held leases.
	DefaultMaxLeases = 1_000_000
	// MaxEndedLeases is how many ended leases are remembered, so that a repeated done
	// gets the same answer.
	MaxEndedLeases = 65_536
	// LeaseBytes is what a lease counts of the quota of bytes, besides the name of its owner.
	LeaseBytes = 512

	leaseShards = 64
	// expireAtOnce is the maximum number of leases that expire under one lock, so that
	// picks do not wait for long.
	expireAtOnce = 256
)

// errUnfinished is what a foreign policy receives for a request that failed or was
// abandoned.
var errUnfinished = errors.New("the request failed")

// held is one lease: a pick whose request is in flight.
type held struct {
	// Fixed.
	record   *ledger.Record
	held     policy.Held
	id       string
	address  string
	priority int
	owner    ledger.Owner
	account  *quota.Account // that pays for the lease; may be nil
	granted  time.Time

	// Guarded by the shard's mu.
	expiresAt time.Time
	timer     wheel.Timer[*held]
}

// leases has the held leases. A lease ends once: only the caller that removes it from
// its shard's map releases what it holds.
//
// One goroutine ends those that expire. It sleeps while no lease is held.
type leases struct {
	max    int64
	eased  func(*ledger.Record) // called after each lease that ended
	count  atomic.Int64
	shards [leaseShards]leaseShard
	keys   idempotencyKeys

	closed  atomic.Bool
	begun   chan struct{} // has a token after the first lease, or key, of a quiet time
	closing chan struct{}
	done    chan struct{} // closed when the goroutine has ended
}

type leaseShard struct {
	mu     sync.Mutex
	held   map[string]*held
	timers *wheel.Wheel[*held]
	ended  map[string]LeaseState
	order  []string // of ended: a ring
	next   int
}

func newLeases(limit int, eased func(*ledger.Record)) *leases {
	ls := &leases{
		max: int64(limit), eased: eased,
		begun: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	now := time.Now()
	for i := range ls.shards {
		ls.shards[i].held = make(map[string]*held)
		ls.shards[i].timers = wheel.New[*held](now)
		ls.shards[i].ended = make(map[string]LeaseState)
	}
	ls.keys.init(now)
	go ls.expireUntilClosed()
	return ls
}

// shard returns the shard of a lease.
func (ls *leases) shard(id string) *leaseShard {
	var h uint32 = 2166136261 // FNV-1a
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return &ls.shards[h%leaseShards]
}

// grant makes a lease of what call holds. If it fails, call holds nothing.
func (ls *leases) grant(c *ledger.Cluster, call *policy.Call, r *Request, share float64) (*Lease, *fault.Error) {
	now := time.Now()
	h := &held{
		record: c.Record, held: call.Held(), id: rand.Text(), account: r.Account,
		owner:   ledger.Owner{Identity: r.Owner.Identity, Name: strings.Clone(r.Owner.Name)},
		address: call.Address, priority: call.Priority, granted: now, expiresAt: now.Add(r.TTL),
	}
	h.timer.Item = h
	if refused := ls.acquire(h, c, share); refused != nil {
		call.Held().Finish(policy.OutcomeExpired, balancer.DoneInfo{Err: errUnfinished})
		return nil, refused
	}
	sh := ls.shard(h.id)
	sh.mu.Lock()
	closed := ls.closed.Load() // close would miss it
	if !closed {
		sh.held[h.id] = h
		sh.timers.Add(&h.timer, now, h.expiresAt)
	}
	sh.mu.Unlock()
	if closed {
		call.Held().Finish(policy.OutcomeExpired, balancer.DoneInfo{Err: errUnfinished})
		ls.releaseQuotas(h)
		return nil, fault.Errorf(fault.ShuttingDown, "the daemon is shutting down")
	}
	ls.wake()
	return &Lease{ID: h.id, ExpiresAt: h.expiresAt.UTC()}, nil
}

// acquire counts a lease against the limit on all leases, the quotas of the caller and the
// owner's share of the cluster.
func (ls *leases) acquire(h *held, c *ledger.Cluster, share float64) *fault.Error {
	if ls.count.Add(1) > ls.max {
		ls.count.Add(-1)
		return limited("lease limit reached (%d)", ls.max)
	}
	if err := h.acquireQuotas(); err != nil {
		ls.count.Add(-1)
		return limited("%v", err)
	}
	limit := maxLeases(c, share)
	if h.record.Totals.Leases.Begin(h.owner, limit) {
		return nil
	}
	h.releaseQuotas()
	ls.count.Add(-1)
	return limited("%v holds %d leases of the cluster, as many as max_lease_share permits", h.owner, limit)
}

func limited(format string, args ...any) *fault.Error {
	return fault.Errorf(fault.RateLimited, format, args...).Retry(time.Second)
}

// maxLeases returns how many leases of a cluster one owner may hold: its share of the circuit
// breakers of the leaves; 0 for no limit.
func maxLeases(c *ledger.Cluster, share float64) int64 {
	if cc := c.ClusterConfig(); cc != nil && cc.Cluster != nil && cc.Cluster.MaxLeaseShare > 0 {
		share = cc.Cluster.MaxLeaseShare
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

func (h *held) bytes() int64 { return LeaseBytes + int64(len(h.owner.Name)) }

func (h *held) acquireQuotas() error {
	if h.account == nil {
		return nil
	}
	if err := h.account.Acquire(quota.Leases, 1); err != nil {
		return err
	}
	if err := h.account.Acquire(quota.Bytes, h.bytes()); err != nil {
		h.account.Release(quota.Leases, 1)
		return err
	}
	return nil
}

func (h *held) releaseQuotas() {
	if h.account != nil {
		h.account.Release(quota.Leases, 1)
		h.account.Release(quota.Bytes, h.bytes())
	}
}

// releaseQuotas reverts acquire.
func (ls *leases) releaseQuotas(h *held) {
	h.record.Totals.Leases.End(h.owner)
	h.releaseQuotas()
	ls.count.Add(-1)
}

// wake makes the goroutine look for what expires.
func (ls *leases) wake() {
	select {
	case ls.begun <- struct{}{}:
	default:
	}
}

// expireUntilClosed ends the leases that expire, and forgets the idempotency keys.
func (ls *leases) expireUntilClosed() {
	defer close(ls.done)
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	batch := make([]*held, 0, expireAtOnce)
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
				batch, more = ls.shards[i].expired(batch[:0])
				for n, h := range batch {
					ls.release(h, Expired, nil)
					batch[n] = nil
				}
			}
		}
		ls.keys.expire()
	}
}

// expired ends leases whose time has come, at most expireAtOnce, and appends them to batch:
// the caller releases them. more reports whether there are others.
func (sh *leaseShard) expired(batch []*held) (_ []*held, more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	more = sh.timers.Advance(time.Now(), expireAtOnce, func(h *held) {
		sh.end(h, Expired)
		batch = append(batch, h)
	})
	return batch, more
}

// end removes h from the map and remembers how it ended. The caller holds mu, and
// releases h after unlocking it.
func (sh *leaseShard) end(h *held, o Outcome) LeaseState {
	delete(sh.held, h.id)
	sh.timers.Remove(&h.timer)
	now := time.Now().UTC()
	state := h.state()
	state.State, state.Outcome, state.EndedAt = "ended", o, &now
	if len(sh.order) < MaxEndedLeases/leaseShards {
		sh.order = append(sh.order, h.id)
	} else {
		delete(sh.ended, sh.order[sh.next])
		sh.order[sh.next] = h.id
		sh.next = (sh.next + 1) % len(sh.order)
	}
	sh.ended[h.id] = state
	return state
}

// find returns a held lease, or nil and how it ended. A lease whose time has come is ended:
// the caller passes late, if not nil, to release. The caller holds mu.
func (sh *leaseShard) find(id string) (h, late *held, ended LeaseState, ok bool) {
	h = sh.held[id]
	if h != nil && !time.Now().Before(h.expiresAt) {
		return nil, h, sh.end(h, Expired), true
	}
	if h != nil {
		return h, nil, LeaseState{}, true
	}
	ended, ok = sh.ended[id]
	return nil, nil, ended, ok
}

func (h *held) state() LeaseState {
	return LeaseState{
		ID: h.id, Cluster: h.record.Name, Target: h.record.Target.Label, Address: h.address, Priority: h.priority,
		Owner: h.owner, State: "held", GrantedAt: h.granted.UTC(), ExpiresAt: h.expiresAt.UTC(),
	}
}

// release releases what h holds, after it was removed from its shard. load may be nil.
func (ls *leases) release(h *held, o Outcome, load *Load) {
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

// close ends every lease as expired.
func (ls *leases) close() {
	if ls.closed.Swap(true) {
		<-ls.done
		return
	}
	close(ls.closing)
	<-ls.done
	ls.endAll(func(*held) bool { return true }, Expired)
}

// endAll ends the leases that match, and returns how many of each cluster and owner.
func (ls *leases) endAll(matches func(*held) bool, o Outcome) map[EndedLeases]int {
	ended := make(map[EndedLeases]int)
	batch := make([]*held, 0, expireAtOnce)
	for i := range ls.shards {
		sh := &ls.shards[i]
		for full := true; full; {
			batch = batch[:0]
			sh.mu.Lock()
			for _, h := range sh.held {
				if !matches(h) {
					continue
				}
				sh.end(h, o)
				if batch = append(batch, h); len(batch) == expireAtOnce {
					break
				}
			}
			sh.mu.Unlock()
			full = len(batch) == expireAtOnce
			for _, h := range batch {
				ls.release(h, o, nil)
				ended[EndedLeases{h.record.Name, h.owner}]++
			}
		}
	}
	return ended
}

// UnknownLease returns the error of a request for a lease that is not known.
func UnknownLease(id string) error {
	return fault.Errorf(fault.UnknownLease, "lease %q not found: it never existed, ended long ago, or the daemon was restarted", id)
}

// EndLease ends a lease with an outcome and the upstream's load, which may be nil. For a
// lease that has ended, it returns how it ended. It does not end a lease if the load is
// invalid.
func (s *Picker) EndLease(id string, o Outcome, load *Load) (LeaseState, error) {
	if load != nil {
		if err := load.check(); err != nil {
			return LeaseState{}, err
		}
	}
	sh := s.leases.shard(id)
	sh.mu.Lock()
	h, late, state, ok := sh.find(id)
	if h != nil {
		state = sh.end(h, o)
	}
	sh.mu.Unlock()
	switch {
	case h != nil:
		s.leases.release(h, o, load)
	case late != nil:
		s.leases.release(late, Expired, nil)
	case !ok:
		return LeaseState{}, UnknownLease(id)
	}
	return state, nil
}

// RenewLease makes a held lease expire ttl from now.
func (s *Picker) RenewLease(id string, ttl time.Duration) (LeaseState, error) {
	state, err := s.Lease(id)
	if err != nil {
		return LeaseState{}, err
	}
	sh := s.leases.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.held[id]
	if h == nil {
		if ended, ok := sh.ended[id]; ok {
			state = ended
		}
		return LeaseState{}, fault.Errorf(fault.UnknownLease, "lease %q has ended (%s) and cannot be renewed", id, state.Outcome).Of(state.Cluster, "")
	}
	now := time.Now()
	sh.timers.Remove(&h.timer)
	h.expiresAt = now.Add(ttl)
	sh.timers.Add(&h.timer, now, h.expiresAt)
	return h.state(), nil
}

// Lease returns what a lease holds, or how it ended.
func (s *Picker) Lease(id string) (LeaseState, error) {
	sh := s.leases.shard(id)
	sh.mu.Lock()
	h, late, state, ok := sh.find(id)
	if h != nil {
		state = h.state()
	}
	sh.mu.Unlock()
	if late != nil {
		s.leases.release(late, Expired, nil)
	}
	if !ok {
		return LeaseState{}, UnknownLease(id)
	}
	return state, nil
}

// LeaseFilter selects held leases.
type LeaseFilter struct {
	// Cluster and Owner select the leases of a cluster, and of callers that gave themselves
	// a name; empty means any.
	Cluster, Owner string
	// Identity selects the leases of an identity; nil means any.
	Identity *string
	// OlderThan selects leases that were granted at least so long ago.
	OlderThan time.Duration
	// MaySee selects leases by their cluster; nil means any.
	MaySee func(cluster string) bool
	// After selects leases whose ID sorts after it. Limit is the maximum number of leases
	// of a list.
	After string
	Limit int
}

// matches returns the function of a filter. It calls MaySee once for each cluster: a shard is locked
// meanwhile, and a caller may have many patterns.
func (f *LeaseFilter) matches() func(*held) bool {
	before := time.Now().Add(-f.OlderThan)
	known := make(map[string]bool)
	maySee := func(cluster string) bool {
		may, ok := known[cluster]
		if !ok {
			may = f.MaySee(cluster)
			known[cluster] = may
		}
		return may
	}
	return func(h *held) bool {
		return (f.Cluster == "" || h.record.Name == f.Cluster) && (f.Owner == "" || h.owner.Name == f.Owner) &&
			(f.Identity == nil || h.owner.Identity == *f.Identity) && !h.granted.After(before) && h.id > f.After &&
			(f.MaySee == nil || maySee(h.record.Name))
	}
}

// Leases returns the held leases that match a filter, in the order of their IDs, and reports
// whether there are more than its limit.
func (s *Picker) Leases(f LeaseFilter) (list []LeaseState, more bool) {
	matches := f.matches()
	list = make([]LeaseState, 0)
	for i := range s.leases.shards {
		sh := &s.leases.shards[i]
		sh.mu.Lock()
		for _, h := range sh.held {
			if matches(h) {
				list = append(list, h.state())
			}
		}
		sh.mu.Unlock()
		if len(list) > f.Limit {
			list, more = firstStates(list, f.Limit), true
		}
	}
	return firstStates(list, f.Limit), more
}

// EndedLeases is a cluster and an owner whose leases were ended.
type EndedLeases struct {
	Cluster string `json:"cluster"`
	ledger.Owner
}

// String returns the form in events.
func (e EndedLeases) String() string { return fmt.Sprintf("%s of %v", e.Cluster, e.Owner) }

// EndLeases ends the held leases that match a filter, except for its Limit and After, as
// canceled. It returns how many of each cluster and owner.
func (s *Picker) EndLeases(f LeaseFilter) map[EndedLeases]int {
	f.After = ""
	return s.leases.endAll(f.matches(), Cancelled)
}
