package picks

import (
	"container/list"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/picks/slab"
	"github.com/lbd-dev/lbd/service/picks/wheel"
	"github.com/lbd-dev/lbd/service/quota"
)

const (
	// KeyBytes is what a key counts of the quota of bytes, besides itself.
	KeyBytes = 512
	// AnswerBytes is what each pick of its answer counts.
	AnswerBytes = 256
)

// idempotencyKeys remembers the answers to requests with a key while their leases are held, so that a
// repeated request gets the same leases, and never one that has ended. Above the quota of all callers, it forgets the oldest of a caller with
// many, and above the quota of a caller, its oldest.
type idempotencyKeys struct {
	// held returns when a lease expires, and reports whether it is held.
	held func(*LeaseID) (expires instant, ok bool)

	mu      sync.Mutex
	entries map[string]*idempotent
	own     map[*quota.Account]*list.List // the answered entries of each account, oldest first
	begun   time.Time                     // fixed; of timers
	timers  *wheel.Wheel
	slots   slab.Slab[*idempotent] // numbers for timers
}

// idempotent is one request with a key, under way or answered.
type idempotent struct {
	key     string
	request uint64
	account *quota.Account // that pays; may be nil
	bytes   int64
	count   int64         // of leases, at most
	done    chan struct{} // closed once answer is set
	answer  *Picks        // nil if the request failed: the next one tries again
	own     *list.Element // in own of the account; nil without one, or without an answer
	number  uint32        // in slots
	timer   wheel.Timer
}

func (k *idempotencyKeys) init(now time.Time) {
	k.entries, k.begun = make(map[string]*idempotent), now
	k.timers = wheel.New(func(number uint32) *wheel.Timer { return &(*k.slots.At(number)).timer })
	k.own = make(map[*quota.Account]*list.List)
}

// once runs pick for the first request with its key, and returns its answer to all later
// ones. A request that failed is forgotten.
func (ls *leases) once(ctx context.Context, r *Request, out *Picks, pick func() error) error {
	digest := digestOf(r)
	for {
		e, mine, err := ls.keys.enter(r, digest)
		if err != nil {
			return limited("%v", err)
		}
		if mine {
			defer ls.begun.Wake()
			return ls.keys.fill(e, r.TTL, out, pick)
		}
		if e.request != digest {
			err := fault.Errorf(fault.InvalidArgument, "Idempotency-Key %q was used for a request with other parameters", r.IdempotencyKey)
			err.Cluster, err.Target = r.Cluster, r.Target
			return err
		}
		select {
		case <-e.done:
		case <-ctx.Done():
			return fault.FromContext(ctx.Err())
		case <-r.Canceled:
			return fault.FromContext(context.Canceled)
		}
		if held := ls.keys.stillHeld(e.answer); len(held) > 0 {
			call := out.call
			*out = *e.answer
			out.Picks, out.call = held, call
			return nil
		}
	}
}

// enter returns the entry of r's key, and whether r is the one to fill it. The error is
// that of the quota.
func (k *idempotencyKeys) enter(r *Request, digest uint64) (e *idempotent, mine bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.entries[r.IdempotencyKey]; e != nil {
		if _, held := k.heldUntil(e.answer); held || e.answer == nil {
			return e, false, nil
		}
		k.remove(e)
	}
	e = &idempotent{
		key: strings.Clone(r.IdempotencyKey), request: digest, account: r.Account, done: make(chan struct{}),
		bytes: int64(KeyBytes + len(r.IdempotencyKey) + AnswerBytes*max(r.N, 1)), count: int64(max(r.N, 1)),
	}
	if err := k.acquire(e); err != nil {
		return nil, false, err
	}
	var slot **idempotent
	e.number, slot = k.slots.Get()
	*slot = e
	k.entries[e.key] = e
	return e, true, nil
}

// heldUntil returns when a held lease of an answer expires, and reports whether any is held.
func (k *idempotencyKeys) heldUntil(answer *Picks) (expires instant, ok bool) {
	for i := 0; answer != nil && i < len(answer.Picks) && !ok; i++ {
		expires, ok = k.held(&answer.Picks[i].Lease.ID)
	}
	return expires, ok
}

// stillHeld returns the picks of an answer, which may be nil, whose leases are held.
func (k *idempotencyKeys) stillHeld(answer *Picks) (picks []Pick) {
	for i := 0; answer != nil && i < len(answer.Picks); i++ {
		p := answer.Picks[i]
		if expires, ok := k.held(&p.Lease.ID); ok {
			p.Lease.ExpiresAt = shown(expires.unix)
			picks = append(picks, p)
		}
	}
	return picks
}

// acquire counts an entry against the quotas of its account. At the limit of leases, it forgets
// answers: the oldest of the account at its own limit, otherwise of one that has more. The caller
// holds mu.
func (k *idempotencyKeys) acquire(e *idempotent) error {
	for {
		err := e.account.TryAcquire(quota.IdempotentLeases, e.count)
		if err == nil {
			break
		}
		limit, ok := errors.AsType[*quota.LimitError](err)
		if !ok || limit.Limit < e.count {
			return err
		}
		answers := k.own[e.account]
		if !limit.Own {
			answers = k.largest(e.account)
		}
		if answers == nil { // requests that are under way have all
			return err
		}
		oldest := answers.Front()
		k.remove(oldest.Value.(*idempotent)) //nolint:errcheck // the lists have nothing else
	}
	if err := e.account.Acquire(quota.Bytes, e.bytes); err != nil {
		e.account.Release(quota.IdempotentLeases, e.count)
		return err
	}
	return nil
}

// maxCompared is the maximum number of accounts that largest compares: many have answers if many
// addresses send keys.
const maxCompared = 64

// largest returns the answers of an account that has more leases than a, or those of a if it finds none;
// nil without any. So no caller makes lbd forget the answers of one that has fewer. The caller holds mu.
func (k *idempotencyKeys) largest(a *quota.Account) *list.List {
	answers, most, compared := k.own[a], int64(0), 0
	if answers != nil {
		most = a.Used(quota.IdempotentLeases)
	}
	for other, own := range k.own { // in random order
		if used := other.Used(quota.IdempotentLeases); used > most {
			answers, most = own, used
		}
		if compared++; compared == maxCompared {
			break
		}
	}
	return answers
}

// fill runs pick for the request of e, and releases those who wait for it, even if pick
// panics.
func (k *idempotencyKeys) fill(e *idempotent, ttl time.Duration, out *Picks, pick func() error) error {
	answered := false
	defer func() { k.leave(e, ttl, out, answered) }()
	err := pick()
	answered = err == nil
	return err
}

// leave keeps the answer to the request of e, if it got one.
func (k *idempotencyKeys) leave(e *idempotent, ttl time.Duration, out *Picks, answered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer close(e.done)
	if !answered {
		k.remove(e)
		return
	}
	answer := *out
	answer.Cluster, answer.call = strings.Clone(out.Cluster), nil
	answer.Picks = slices.Clone(out.Picks)
	for i := range answer.Picks {
		p := &answer.Picks[i]
		p.Explain, p.upstream = nil, nil // they are large
		if p.Cluster == answer.Cluster {
			p.Cluster = answer.Cluster
		} else {
			p.Cluster = strings.Clone(p.Cluster)
		}
	}
	e.answer = &answer
	if e.account != nil {
		e.account.Release(quota.IdempotentLeases, e.count-int64(len(answer.Picks)))
		e.count = int64(len(answer.Picks))
		if k.own[e.account] == nil {
			k.own[e.account] = list.New()
		}
		e.own = k.own[e.account].PushBack(e)
	}
	now := time.Since(k.begun)
	k.timers.Add(e.number, &e.timer, now, now+ttl)
}

// remove forgets an entry. The caller holds mu.
func (k *idempotencyKeys) remove(e *idempotent) {
	delete(k.entries, e.key)
	k.timers.Remove(e.number, &e.timer)
	k.slots.Put(e.number)
	if own := k.own[e.account]; e.own != nil {
		if own.Remove(e.own); own.Len() == 0 {
			delete(k.own, e.account)
		}
	}
	e.account.Release(quota.Bytes, e.bytes)
	e.account.Release(quota.IdempotentLeases, e.count)
}

// expire forgets the entries whose leases have ended, and waits for those that were renewed.
func (k *idempotencyKeys) expire() {
	for more := true; more; {
		k.mu.Lock()
		now := time.Since(k.begun)
		more = k.timers.Advance(now, expireAtOnce, func(number uint32) {
			e := *k.slots.At(number)
			if expires, held := k.heldUntil(e.answer); held {
				k.timers.Add(number, &e.timer, now, expires.elapsed)
			} else {
				k.remove(e)
			}
		})
		k.mu.Unlock()
	}
}

func (k *idempotencyKeys) empty() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.timers.Len() == 0
}

// digestOf returns a hash of all that must be equal in a repeated request: all but Wait. It has a random
// seed, and a caller that finds two requests with the same hash would only get its own leases.
func digestOf(r *Request) uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	for _, text := range []string{r.Cluster, r.Target, r.Path, r.Hash, r.Owner.Identity, r.Owner.Name} {
		maphash.WriteComparable(&h, text)
	}
	maphash.WriteComparable(&h, [...]int64{int64(r.N), int64(r.TTL), int64(len(r.Headers)), int64(len(r.Exclude))})
	for _, header := range r.Headers {
		maphash.WriteComparable(&h, header)
	}
	for _, address := range r.Exclude {
		maphash.WriteComparable(&h, address)
	}
	maphash.WriteComparable(&h, [...]bool{r.Explain, r.WaitForReady})
	return h.Sum64()
}

var digestSeed = maphash.MakeSeed()
