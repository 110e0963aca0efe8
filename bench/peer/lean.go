// Package peer has what lbd is compared with.
package peer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Lean is the leanest code that could do a pick: an array of endpoints in rotation, a draw
// for the drops, a circuit breaker, and load counters. Its leases are slots of a slab with
// a free list.
type Lean struct {
	endpoints  []leanEndpoint
	perMillion uint64
	limit      int64

	next     atomic.Uint64
	inFlight atomic.Int64

	mu    sync.Mutex
	slots []leanLease
	free  []uint32
}

// leanEndpoint has the size of a cache line.
type leanEndpoint struct {
	address             string
	started, inProgress atomic.Int64
	succeeded           atomic.Int64
	_                   [24]byte
}

// LeanLease is the ID of a lease: its slot, a number that changes with each use of the
// slot, and 128 random bits.
type LeanLease struct {
	slot, generation uint32
	secret           [2]uint64
}

type leanLease struct {
	LeanLease

	endpoint *leanEndpoint
	expires  time.Time
}

var (
	errDropped = errors.New("dropped")
	errFull    = errors.New("the circuit breaker is full")
	errNoLease = errors.New("lease not found")
)

// NewLean returns a Lean with n endpoints.
func NewLean(n int) *Lean {
	l := &Lean{endpoints: make([]leanEndpoint, n), perMillion: 1, limit: maxRequests}
	for i := range l.endpoints {
		l.endpoints[i].address = fmt.Sprintf("10.%d.%d.%d:8000", i>>16, i>>8&255, i&255)
	}
	return l
}

func (l *Lean) take() (*leanEndpoint, error) {
	if rand.Uint64N(1_000_000) < l.perMillion {
		return nil, errDropped
	}
	if l.inFlight.Load() >= l.limit {
		return nil, errFull
	}
	e := &l.endpoints[l.next.Add(1)%uint64(len(l.endpoints))]
	e.started.Add(1)
	return e, nil
}

// Pick returns the address of an endpoint.
func (l *Lean) Pick() (string, error) {
	e, err := l.take()
	if err != nil {
		return "", err
	}
	return e.address, nil
}

// Lease picks an endpoint and counts a request in flight until End.
func (l *Lean) Lease(ttl time.Duration) (string, LeanLease, error) {
	e, err := l.take()
	if err != nil {
		return "", LeanLease{}, err
	}
	l.inFlight.Add(1)
	e.inProgress.Add(1)
	expires := time.Now().Add(ttl)
	l.mu.Lock()
	defer l.mu.Unlock()
	var slot uint32
	if n := len(l.free); n > 0 {
		slot, l.free = l.free[n-1], l.free[:n-1]
	} else {
		slot = uint32(len(l.slots))
		l.slots = append(l.slots, leanLease{})
	}
	s := &l.slots[slot]
	s.slot, s.generation = slot, s.generation+1
	s.secret = [2]uint64{rand.Uint64(), rand.Uint64()}
	s.endpoint, s.expires = e, expires
	return e.address, s.LeanLease, nil
}

// End ends a lease.
func (l *Lean) End(id LeanLease) error {
	l.mu.Lock()
	if int(id.slot) >= len(l.slots) || l.slots[id.slot].LeanLease != id || l.slots[id.slot].endpoint == nil {
		l.mu.Unlock()
		return errNoLease
	}
	s := &l.slots[id.slot]
	e := s.endpoint
	s.endpoint = nil
	l.free = append(l.free, id.slot)
	l.mu.Unlock()
	e.inProgress.Add(-1)
	e.succeeded.Add(1)
	l.inFlight.Add(-1)
	return nil
}
