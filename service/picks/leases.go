package picks

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
)

const (
	// DefaultMaxLeases is the default limit on held leases.
	DefaultMaxLeases = 1_000_000
	// MaxEndedLeases is how many ended leases are remembered, so that a repeated done
	// gets the same answer.
	MaxEndedLeases = 65_536

	leaseShards = 64
)

// errUnfinished is what a foreign policy receives for a request that failed or was
// abandoned.
var errUnfinished = errors.New("the request failed")

// held is one lease: a pick whose request is in flight.
type held struct {
	// Fixed.
	account  *ledger.Record
	held     policy.Held
	id       string
	address  string
	priority int

	// Guarded by the shard's mu.
	expiresAt time.Time
	timer     *time.Timer
}

// leases has the held leases. A lease ends once: only the caller that removes it from
// its shard's map releases what it holds.
type leases struct {
	max    int64
	eased  func(*ledger.Record) // called after each lease that ended
	count  atomic.Int64
	closed atomic.Bool
	shards [leaseShards]leaseShard
	keys   idempotencyKeys
}

type leaseShard struct {
	mu    sync.Mutex
	held  map[string]*held
	ended map[string]LeaseState
	order []string // of ended: a ring
	next  int
}

func newLeases(limit int, eased func(*ledger.Record)) *leases {
	ls := &leases{max: int64(limit), eased: eased}
	for i := range ls.shards {
		ls.shards[i].held = make(map[string]*held)
		ls.shards[i].ended = make(map[string]LeaseState)
	}
	ls.keys.entries = make(map[string]*idempotent)
	return ls
}

func (ls *leases) shard(id string) *leaseShard {
	var h uint32 = 2166136261 // FNV-1a
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return &ls.shards[h%leaseShards]
}

// grant makes a lease of what call holds. If it fails, call holds nothing.
func (ls *leases) grant(a *ledger.Record, call *policy.Call, ttl time.Duration) (*Lease, *fault.Error) {
	if ls.count.Add(1) > ls.max {
		ls.refuse(call)
		return nil, fault.Errorf(fault.RateLimited, "lease limit reached (%d)", ls.max).Retry(time.Second)
	}
	h := &held{
		account: a, held: call.Held(), id: rand.Text(),
		address: call.Address, priority: call.Priority, expiresAt: time.Now().Add(ttl),
	}
	lease := &Lease{ID: h.id, ExpiresAt: h.expiresAt.UTC()}
	sh := ls.shard(h.id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if ls.closed.Load() { // close would miss it
		ls.refuse(call)
		return nil, fault.Errorf(fault.ShuttingDown, "the daemon is shutting down")
	}
	a.Totals.Leases.Add(1)
	sh.held[h.id] = h
	h.timer = time.AfterFunc(ttl, func() { ls.expire(h) })
	return lease, nil
}

// refuse releases what call holds, and its place among the leases.
func (ls *leases) refuse(call *policy.Call) {
	ls.count.Add(-1)
	call.Held().Finish(policy.OutcomeExpired, balancer.DoneInfo{Err: errUnfinished})
}

// expire ends a lease at its time, unless it was renewed.
func (ls *leases) expire(h *held) {
	sh := ls.shard(h.id)
	sh.mu.Lock()
	late := sh.held[h.id] == h && !time.Now().Before(h.expiresAt)
	if late {
		sh.end(h, Expired)
	}
	sh.mu.Unlock()
	if late {
		ls.release(h, Expired, nil)
	}
}

// end removes h from the map and remembers how it ended. The caller holds mu, and
// releases h after unlocking it.
func (sh *leaseShard) end(h *held, o Outcome) LeaseState {
	delete(sh.held, h.id)
	h.timer.Stop()
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

func (h *held) state() LeaseState {
	return LeaseState{
		ID: h.id, Cluster: h.account.Name, Target: h.account.Target.Label, Address: h.address, Priority: h.priority,
		State: "held", ExpiresAt: h.expiresAt.UTC(),
	}
}

var policyOutcomes = map[Outcome]policy.Outcome{
	Success:   policy.OutcomeSuccess,
	Failure:   policy.OutcomeError,
	Cancelled: policy.OutcomeCancelled,
	Expired:   policy.OutcomeExpired,
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
	h.held.Finish(policyOutcomes[o], info)
	h.account.Totals.Leases.Add(-1)
	h.account.Totals.Outcomes.Add(policyOutcomes[o])
	ls.count.Add(-1)
	ls.eased(h.account)
}

func (ls *leases) close() {
	ls.closed.Store(true)
	for i := range ls.shards {
		sh := &ls.shards[i]
		sh.mu.Lock()
		all := slices.Collect(maps.Values(sh.held))
		for _, h := range all {
			sh.end(h, Expired)
		}
		sh.mu.Unlock()
		for _, h := range all {
			ls.release(h, Expired, nil)
		}
	}
}

func unknownLease(id string) error {
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
	h := sh.held[id]
	if h == nil {
		state, ok := sh.ended[id]
		sh.mu.Unlock()
		if !ok {
			return LeaseState{}, unknownLease(id)
		}
		return state, nil
	}
	state := sh.end(h, o)
	sh.mu.Unlock()
	s.leases.release(h, o, load)
	return state, nil
}

// RenewLease makes a held lease expire ttl from now.
func (s *Picker) RenewLease(id string, ttl time.Duration) (LeaseState, error) {
	sh := s.leases.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h := sh.held[id]
	if h == nil {
		if state, ok := sh.ended[id]; ok {
			return LeaseState{}, fault.Errorf(fault.UnknownLease, "lease %q has ended (%s) and cannot be renewed", id, state.Outcome).Of(state.Cluster, "")
		}
		return LeaseState{}, unknownLease(id)
	}
	h.expiresAt = time.Now().Add(ttl)
	h.timer.Reset(ttl)
	return h.state(), nil
}

// Lease returns what a lease holds, or how it ended.
func (s *Picker) Lease(id string) (LeaseState, error) {
	sh := s.leases.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h := sh.held[id]; h != nil {
		return h.state(), nil
	}
	if state, ok := sh.ended[id]; ok {
		return state, nil
	}
	return LeaseState{}, unknownLease(id)
}

// idempotencyKeys remembers the answers to requests with a key, so that a repeated
// request gets the same leases. It forgets the oldest above MaxEndedLeases leases.
type idempotencyKeys struct {
	mu      sync.Mutex
	entries map[string]*idempotent
	order   []string // of the answered entries, oldest first
	leases  int      // that they hold
}

// idempotent is one request with a key, under way or answered.
type idempotent struct {
	request Request
	done    chan struct{} // closed once answer is set
	answer  *Picks        // nil if the request failed: the next one tries again
}

// once runs pick for the first request with its key, and returns its answer to all later
// ones. A request that failed is forgotten.
func (ls *leases) once(ctx context.Context, r *Request, out *Picks, pick func() error) error {
	for {
		e, mine := ls.keys.enter(r)
		if mine {
			return ls.keys.fill(r, e, out, pick)
		}
		if !sameRequest(&e.request, r) {
			return fault.Errorf(fault.InvalidArgument, "Idempotency-Key %q was used for a request with other parameters", r.IdempotencyKey).Of(r.Cluster, r.Target)
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return fault.FromContext(ctx.Err())
		}
		if e.answer != nil {
			*out = *e.answer
			out.Picks = slices.Clone(e.answer.Picks)
			return nil
		}
	}
}

// enter returns the entry of r's key, and whether r is the one to fill it.
func (k *idempotencyKeys) enter(r *Request) (e *idempotent, mine bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[r.IdempotencyKey]; e != nil {
		return e, false
	}
	e = &idempotent{request: *r, done: make(chan struct{})}
	e.request.Exclude, e.request.Headers = slices.Clone(r.Exclude), slices.Clone(r.Headers)
	k.entries[r.IdempotencyKey] = e
	return e, true
}

// fill runs pick for the request of e, keeps its answer, and releases those who wait for
// it, even if pick panics.
func (k *idempotencyKeys) fill(r *Request, e *idempotent, out *Picks, pick func() error) (err error) {
	answered := false
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		defer close(e.done)
		if answered {
			k.keep(r.IdempotencyKey, e, out)
		} else {
			delete(k.entries, r.IdempotencyKey)
		}
	}()
	err = pick()
	answered = err == nil
	return err
}

// keep sets the answer of e. The caller holds k.mu.
func (k *idempotencyKeys) keep(key string, e *idempotent, out *Picks) {
	answer := *out
	answer.Picks = slices.Clone(out.Picks)
	for i := range answer.Picks {
		answer.Picks[i].Explain = nil // it is large
	}
	e.answer = &answer
	k.order = append(k.order, key)
	k.leases += len(answer.Picks)
	for k.leases > MaxEndedLeases {
		oldest := k.order[0]
		k.leases -= len(k.entries[oldest].answer.Picks)
		delete(k.entries, oldest)
		k.order = k.order[1:]
	}
}

// sameRequest reports whether two requests differ at most in Wait.
func sameRequest(a, b *Request) bool {
	return a.Cluster == b.Cluster && a.Target == b.Target && a.Path == b.Path && slices.Equal(a.Headers, b.Headers) &&
		a.N == b.N && a.TTL == b.TTL && a.Hash == b.Hash &&
		a.Explain == b.Explain && a.WaitForReady == b.WaitForReady && slices.Equal(a.Exclude, b.Exclude)
}
