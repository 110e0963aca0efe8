package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Owner is who holds a lease.
type Owner struct {
	// Identity is the name of the caller; empty without one.
	Identity string `json:"identity,omitempty"`
	// Name is what the caller calls itself; empty without one.
	Name string `json:"owner,omitempty"`
}

// String returns the form in texts.
func (o Owner) String() string {
	switch {
	case o == Owner{}:
		return "callers without name"
	case o.Identity == "":
		return o.Name
	case o.Name == "":
		return o.Identity
	default:
		return o.Identity + "/" + o.Name
	}
}

// Holder is how many leases of a cluster an owner holds.
type Holder struct {
	Owner

	Leases int64 `json:"leases"`
}

// String returns the form in texts.
func (h Holder) String() string { return fmt.Sprintf("%v (%d)", h.Owner, h.Leases) }

// Leases counts the leases of a cluster by owner.
type Leases struct {
	last  func()       // called without a lock when the last lease has ended; may be nil
	count atomic.Int64 // changed under mu

	mu      sync.Mutex // guards the rest
	holders map[Owner]int64
	largest []Holder // as of sorted
	sorted  time.Time
}

// Begin counts a lease of an owner, unless that holds limit; 0 means no limit.
func (l *Leases) Begin(o Owner, limit int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.holders[o]
	if limit > 0 && n >= limit {
		return false
	}
	if l.holders == nil {
		l.holders = make(map[Owner]int64)
	}
	l.holders[o] = n + 1
	l.count.Add(1)
	return true
}

// End reverts Begin.
func (l *Leases) End(o Owner) {
	l.mu.Lock()
	if l.holders[o]--; l.holders[o] == 0 {
		delete(l.holders, o)
	}
	last := l.count.Add(-1) == 0
	l.mu.Unlock()
	if last && l.last != nil {
		l.last()
	}
}

// Load returns the number of leases.
func (l *Leases) Load() int64 { return l.count.Load() }

const (
	// LargestHolders is how many owners [Leases.Largest] returns.
	LargestHolders = 3
	// holdersAge is the maximum age of what it returns: it is the answer to each rejected
	// pick of a full circuit breaker.
	holdersAge = time.Second
)

// Largest returns the owners that hold the most leases, the largest first, as of a second
// ago at most; nil if there are no leases.
func (l *Leases) Largest(now time.Time) []Holder {
	if l.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.sorted) < holdersAge && l.largest != nil {
		return l.largest
	}
	return l.sort(now)
}

// LargestNow is Largest as of now.
func (l *Leases) LargestNow(now time.Time) []Holder {
	if l.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sort(now)
}

// sort finds the owners that hold the most leases. It is called under mu.
func (l *Leases) sort(now time.Time) []Holder {
	var largest []Holder
	for o, leases := range l.holders {
		h := Holder{o, leases}
		at, _ := slices.BinarySearchFunc(largest, h, compareHolders)
		if at < LargestHolders {
			largest = slices.Insert(largest[:min(len(largest), LargestHolders-1)], at, h)
		}
	}
	l.largest, l.sorted = largest, now
	return largest
}

func compareHolders(a, b Holder) int {
	return cmp.Or(cmp.Compare(b.Leases, a.Leases), strings.Compare(a.Identity, b.Identity), strings.Compare(a.Name, b.Name))
}
