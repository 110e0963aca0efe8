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
	// Fixed after build.
	cluster string
	last    func() // called without a lock when the last lease of an unused cluster has ended; may be nil

	// named counts the leases of owners with a name or an identity.
	named atomic.Int64
	// through counts the leases of picks that named an AGGREGATE, of which the cluster is a leaf. They count there, too.
	through atomic.Int64
	// unused is set while no target has the cluster.
	unused atomic.Bool
	// unnamed counts for callers without identity and name.
	unnamed OwnerLeases
	// recent is an owner that Begin found last; nil for none.
	recent atomic.Pointer[OwnerLeases]

	mu sync.Mutex // guards the rest
	// owners is nil before the first owner that has a name, and the first call of Largest: most
	// clusters have no leases.
	*owners
}

// owners are the owners of leases that have a name.
type owners struct {
	byName map[Owner]*OwnerLeases
	// idle has owners without leases, a ring. They are kept because most of them come back.
	idle    [idleOwners]*OwnerLeases
	next    int      // of idle
	largest []Holder // as of sorted
	sorted  time.Time
}

// lock locks mu, and makes owners if necessary.
func (l *Leases) lock() {
	l.mu.Lock()
	if l.owners == nil {
		l.owners = &owners{byName: make(map[Owner]*OwnerLeases)}
	}
}

// idleOwners is the number of owners of a cluster that are kept without leases.
const idleOwners = 8

// OwnerLeases counts the leases that one owner holds of one cluster.
type OwnerLeases struct {
	// Fixed after build.
	Owner

	// Cluster is its name.
	Cluster string

	of *Leases
	// count is negative once the owner is removed.
	count atomic.Int64
	// kept says that the owner is in idle of Leases. It changes under mu.
	kept atomic.Bool
}

// removedOwner is the count of an owner that was removed.
const removedOwner = -1 << 32

// Begin counts a lease of an owner, unless that holds limit; 0 means no limit. It returns nil
// at the limit. Otherwise, End of what it returns must be called once. It allocates nothing
// for an owner that had leases recently, and takes no lock for the most recent one.
func (l *Leases) Begin(o Owner, limit int64) *OwnerLeases {
	own := l.recent.Load()
	switch {
	case o == Owner{}:
		own = &l.unnamed
	case own == nil || own.Owner != o:
		own = l.find(o)
	}
	for {
		n := own.count.Load()
		if n < 0 { // removed meanwhile
			own = l.find(o)
			continue
		}
		if limit > 0 && n >= limit {
			return nil
		}
		if own.count.CompareAndSwap(n, n+1) {
			if own != &l.unnamed {
				l.named.Add(1)
			}
			return own
		}
	}
}

// BeginThrough counts a lease of an owner whose pick named an AGGREGATE, of which the cluster is a leaf. EndThrough of
// what it returns must be called once.
func (l *Leases) BeginThrough(o Owner) *OwnerLeases {
	own := l.Begin(o, 0) // the limit is that of the AGGREGATE
	l.through.Add(1)
	return own
}

// EndThrough reverts BeginThrough.
func (own *OwnerLeases) EndThrough() {
	own.of.through.Add(-1)
	own.End()
}

// find returns the counter of an owner that has a name, which it creates if necessary.
func (l *Leases) find(o Owner) *OwnerLeases {
	l.lock()
	defer l.mu.Unlock()
	own := l.byName[o]
	if own == nil {
		o = Owner{strings.Clone(o.Identity), strings.Clone(o.Name)} // o may be a part of a long text
		own = &OwnerLeases{Owner: o, Cluster: l.cluster, of: l}
		l.byName[o] = own
		l.keep(own) // until it has a lease
	}
	l.recent.Store(own)
	return own
}

// keep keeps an owner without leases, and removes the one that is kept longest, unless that has
// leases again. It is called under mu.
func (l *Leases) keep(own *OwnerLeases) {
	if own.kept.Load() || l.byName[own.Owner] != own {
		return
	}
	own.kept.Store(true)
	oldest := l.idle[l.next]
	l.idle[l.next] = own
	l.next = (l.next + 1) % idleOwners
	if oldest == nil {
		return
	}
	oldest.kept.Store(false)
	if oldest.count.CompareAndSwap(0, removedOwner) {
		delete(l.byName, oldest.Owner)
		l.recent.CompareAndSwap(oldest, nil)
	}
}

// End reverts Begin.
func (own *OwnerLeases) End() {
	l := own.of
	left := own.count.Add(-1)
	if own != &l.unnamed {
		l.named.Add(-1)
		if left == 0 && !own.kept.Load() {
			l.mu.Lock()
			l.keep(own)
			l.mu.Unlock()
		}
	}
	if l.unused.Load() && l.Load() == 0 && l.last != nil {
		l.last()
	}
}

// Load returns the number of leases, also of those of picks that named an AGGREGATE.
func (l *Leases) Load() int64 { return l.unnamed.count.Load() + l.named.Load() }

// Picked returns the number of leases of picks that named the cluster: the sum over all clusters has each lease once.
func (l *Leases) Picked() int64 { return max(0, l.Load()-l.through.Load()) }

const (
	// LargestHolders is how many owners [Leases.Largest] returns.
	LargestHolders = 3
	// holdersAge is the maximum age of what it returns: it is the answer to each rejected
	// pick of a full circuit breaker.
	holdersAge = time.Second
)

// Largest returns the owners that hold the most leases, the largest first, as of a second
// ago at most; nil if there are no leases.
func (l *Leases) Largest(now time.Time) []Holder { return l.holders(now, holdersAge) }

// LargestNow is Largest as of now.
func (l *Leases) LargestNow(now time.Time) []Holder { return l.holders(now, 0) }

// holders finds the owners that hold the most leases, as of a time of at most an age.
func (l *Leases) holders(now time.Time, age time.Duration) []Holder {
	if l.Load() == 0 {
		return nil
	}
	l.lock()
	defer l.mu.Unlock()
	if now.Sub(l.sorted) < age && l.largest != nil {
		return l.largest
	}
	var largest []Holder
	add := func(own *OwnerLeases) {
		h := Holder{own.Owner, own.count.Load()}
		if h.Leases <= 0 {
			return
		}
		at, _ := slices.BinarySearchFunc(largest, h, func(a, b Holder) int {
			return cmp.Or(cmp.Compare(b.Leases, a.Leases), strings.Compare(a.Identity, b.Identity), strings.Compare(a.Name, b.Name))
		})
		if at < LargestHolders {
			largest = slices.Insert(largest[:min(len(largest), LargestHolders-1)], at, h)
		}
	}
	add(&l.unnamed)
	for _, own := range l.byName {
		add(own)
	}
	l.largest, l.sorted = largest, now
	return largest
}
