package picks

import (
	crand "crypto/rand"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks/slab"
	"github.com/lbd-dev/lbd/service/picks/wheel"
	"github.com/lbd-dev/lbd/service/quota"
)

const (
	leaseShards = 64
	// endedInShard is how many ended leases a shard remembers.
	endedInShard = MaxEndedLeases / leaseShards
)

// leaseSlot has a lease: a pick whose request is in flight, or one that ended recently. It is
// guarded by its shard's mu.
type leaseSlot struct {
	secret  [2]uint64
	granted instant
	expires int64 // Unix time in nanoseconds
	// end is when a held lease expires, as elapsed time, or the Unix time in nanoseconds at which it ended.
	end int64

	holding

	address    string
	target     string // its label
	generation uint32
	priority   int32
	timer      wheel.Timer
	outcome    uint8 // index of outcomes; 0 while held
}

// holding is what a lease holds until it ends. Of an ended lease, only owner and leaf are set.
type holding struct {
	record  *ledger.Record
	owner   *ledger.OwnerLeases // of the cluster that was picked
	leaf    *ledger.OwnerLeases // of the leaf that the request goes to, if that is an AGGREGATE; else nil
	account *quota.Account      // that pays for the lease; may be nil
	held    policy.Held
}

// isOf reports whether the lease is of a cluster: whether that was picked, or is the leaf that the request goes to.
func (h *holding) isOf(cluster string) bool {
	return h.owner.Cluster == cluster || h.leaf != nil && h.leaf.Cluster == cluster
}

// outcomes are numbered, so that a slot needs one byte.
var outcomes = [...]Outcome{"", Success, Failure, Cancelled, Unreachable, Expired}

func outcomeNumber(o Outcome) uint8 { return uint8(max(0, slices.Index(outcomes[:], o))) }

// instant is a time in two clocks: that of the machine, which is shown, and one that is never set.
type instant struct {
	unix    int64         // nanoseconds
	elapsed time.Duration // since the clock began
}

func (i instant) add(d time.Duration) instant { return instant{i.unix + int64(d), i.elapsed + d} }

// clock reads both clocks at the price of one. It looks at the clock of the machine every maxClockAge
// only, and goes on from there.
type clock struct {
	begun time.Time // fixed

	set    atomic.Int64 // elapsed of the last look, in nanoseconds
	offset atomic.Int64 // Unix time when elapsed was 0, as of then
}

const maxClockAge = 50 * time.Millisecond

func (c *clock) init() {
	c.begun = time.Now()
	c.offset.Store(c.begun.UnixNano())
}

func (c *clock) now() instant {
	elapsed := time.Since(c.begun)
	if int64(elapsed)-c.set.Load() > int64(maxClockAge) {
		now := time.Now()
		elapsed = now.Sub(c.begun)
		c.offset.Store(now.UnixNano() - int64(elapsed))
		c.set.Store(int64(elapsed))
	}
	return instant{int64(elapsed) + c.offset.Load(), elapsed}
}

// shown returns the time of a clock that users see.
func shown(unix int64) time.Time { return time.Unix(0, unix).UTC() }

// leaseShard has a part of the leases. An ended lease keeps its slot until endedInShard others
// have ended, so that a repeated done gets the same answer.
type leaseShard struct {
	// Fixed after init.
	number  uint8
	replica uint64 // the upper bits of secrets in a fleet
	mask    uint64 // has the bits of secrets that are random

	mu         sync.Mutex // guards the rest
	slots      slab.Slab[leaseSlot]
	timers     *wheel.Wheel
	generation uint32
	random     *rand.ChaCha8 // of a seed from the system: callers cannot guess the next number
	ended      []uint32      // slots: a ring
	next       int           // of ended
}

func (sh *leaseShard) init(number int, replica ReplicaTag) {
	if sh.mask = ^uint64(0); replica != 0 {
		sh.replica, sh.mask = uint64(replica)<<tagShift, 1<<tagShift-1
	}
	var seed [32]byte
	_, _ = crand.Read(seed[:]) // never fails
	sh.number, sh.random = uint8(number), rand.NewChaCha8(seed)
	sh.timers = wheel.New(func(slot uint32) *wheel.Timer { return &sh.slots.At(slot).timer })
}

// grant returns a slot for a lease, and sets id: the caller, which holds mu, sets what the
// lease holds. This and the functions below set field by field: a processor takes longer to
// copy a large struct that was just written.
func (sh *leaseShard) grant(id *LeaseID, now, expires instant) *leaseSlot {
	number, s := sh.slots.Get()
	sh.generation++
	id.shard, id.slot, id.generation = sh.number, number, sh.generation
	id.secret[0], id.secret[1] = sh.replica|sh.random.Uint64()&sh.mask, sh.random.Uint64()
	s.secret[0], s.secret[1] = id.secret[0], id.secret[1]
	s.generation = sh.generation
	s.granted, s.expires, s.end = now, expires.unix, int64(expires.elapsed)
	sh.timers.Add(number, &s.timer, now.elapsed, expires.elapsed)
	return s
}

// maxAdoptedSlot limits the memory that the number of a slot in a file may cause.
const maxAdoptedSlot = 1 << 20

// adopt returns the slot of a lease of an earlier process, as grant does; another slot if that is used, or
// without a lease, which is nil then.
func (sh *leaseShard) adopt(l *LeaseState, now, expires instant) *leaseSlot {
	var s *leaseSlot
	if l != nil && l.ID.slot < maxAdoptedSlot {
		s = sh.slots.Take(l.ID.slot)
	}
	if s == nil {
		return sh.grant(new(LeaseID), now, expires)
	}
	s.secret, s.generation = l.ID.secret, l.ID.generation
	s.granted = now.add(-time.Duration(now.unix - l.GrantedAt.UnixNano()))
	s.expires, s.end = expires.unix, int64(expires.elapsed)
	s.address, s.target, s.priority = l.Address, l.Target, int32(l.Priority)
	sh.timers.Add(l.ID.slot, &s.timer, now.elapsed, expires.elapsed)
	return s
}

// find returns the slot of a lease, held or ended, or nil. It compares the whole ID in constant
// time. The caller holds mu.
func (sh *leaseShard) find(id *LeaseID) *leaseSlot {
	s := sh.slots.At(id.slot)
	if s == nil {
		return nil
	}
	if uint64(s.generation^id.generation)|(s.secret[0]^id.secret[0])|(s.secret[1]^id.secret[1]) != 0 {
		return nil
	}
	return s
}

// end ends a held lease, and sets h to what it held: the caller releases that after unlocking
// mu, which it holds.
func (sh *leaseShard) end(number uint32, s *leaseSlot, o uint8, now instant, h *holding) {
	*h = s.holding
	s.record, s.account, s.held = nil, nil, policy.Held{}
	s.outcome, s.end = o, now.unix
	sh.timers.Remove(number, &s.timer)
	if len(sh.ended) < endedInShard {
		sh.ended = append(sh.ended, number)
		return
	}
	sh.slots.Put(sh.ended[sh.next])
	sh.ended[sh.next] = number
	if sh.next++; sh.next == len(sh.ended) {
		sh.next = 0
	}
}

// endDue ends the lease of s if its time has come, and reports whether it did: the caller
// releases h.
func (sh *leaseShard) endDue(number uint32, s *leaseSlot, now instant, h *holding) (due bool) {
	if s.outcome != 0 || int64(now.elapsed) < s.end {
		return false
	}
	sh.end(number, s, expiredNumber, now, h)
	return true
}

// expiredNumber is that of Expired in outcomes.
const expiredNumber = uint8(len(outcomes) - 1)

// renew makes a held lease expire at a time.
func (sh *leaseShard) renew(number uint32, s *leaseSlot, now, expires instant) {
	sh.timers.Remove(number, &s.timer)
	s.expires, s.end = expires.unix, int64(expires.elapsed)
	sh.timers.Add(number, &s.timer, now.elapsed, expires.elapsed)
}

// id returns the ID of the lease in a slot.
func (sh *leaseShard) id(number uint32, s *leaseSlot) LeaseID {
	return LeaseID{sh.number, number, s.generation, s.secret}
}

// describe sets state to that of the lease in a slot.
func (sh *leaseShard) describe(state *LeaseState, number uint32, s *leaseSlot) {
	state.ID.shard, state.ID.slot, state.ID.generation, state.ID.secret = sh.number, number, s.generation, s.secret
	state.Cluster, state.Leaf, state.Target = s.owner.Cluster, "", s.target
	if s.leaf != nil {
		state.Leaf = s.leaf.Cluster
	}
	state.Address, state.Priority = s.address, int(s.priority)
	state.Identity, state.Name = s.owner.Identity, s.owner.Name
	state.GrantedAt, state.ExpiresAt = shown(s.granted.unix), shown(s.expires)
	if s.outcome == 0 {
		state.State, state.Outcome, state.EndedAt = "held", "", time.Time{}
	} else {
		state.State, state.Outcome, state.EndedAt = "ended", outcomes[s.outcome], shown(s.end)
	}
}
