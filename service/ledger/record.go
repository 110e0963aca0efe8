package ledger

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// MaxClustersWithSeries is how many clusters have series of their own; the
	// rest are counted together as OverflowCluster.
	MaxClustersWithSeries = 10_000
	// OverflowCluster stands for the clusters without series of their own. A
	// cluster of this name, which cannot be pushed, is one of them.
	OverflowCluster = decode.ReservedName
)

// Record is what happens to one cluster in one target, for as long as the
// target has the cluster.
type Record struct {
	// Fixed after build.
	Target *Target
	Name   string // the cluster's; empty for a target's unrouted picks
	// OwnSeries is false beyond MaxClustersWithSeries: Counts are those of all such
	// records together.
	OwnSeries bool
	*Counts

	Totals *Totals // the cluster's; nil for unrouted picks

	stale   atomic.Bool
	ambient atomic.Pointer[Ambient]

	// elsewhere counts successful picks of no place of the newest config. Those of a place
	// that leaves the config move here under mu.
	elsewhere atomic.Uint64
	mu        sync.Mutex
}

// closePlaces moves the counts of places that have left the config.
func (r *Record) closePlaces(left places) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range left {
		r.elsewhere.Add(p.Close())
	}
}

// Result is the result of a pick, as metrics count it: OK, or the code of its error.
type Result string

// OK is the result of a pick that has an endpoint.
const OK Result = "ok"

// Counts are what metrics show of a cluster for each target.
type Counts struct {
	// Picks is without OK, which [Cluster.Succeeded] returns, apart from Ledger.Rest.
	Picks    Tally[Result]
	Switches Tally[policy.SwitchReason]
	Connects Tally[string]
	Losses   Tally[string]
}

// Stale reports whether resources of the cluster are from a management server that is
// unreachable.
func (r *Record) Stale() bool { return r.stale.Load() }

// SetStale replaces what Stale returns, until the next config or [Ledger.ServersChanged].
func (r *Record) SetStale(stale bool) {
	if r.stale.Swap(stale) != stale {
		r.Target.Changed.Notify()
	}
}

// Ambient returns the cluster's resources that are in use in spite of an error.
func (r *Record) Ambient() *Ambient { return r.ambient.Load() }

// Totals counts for one cluster in all targets.
type Totals struct {
	// Fixed after build.
	Name string
	// OwnSeries is false beyond MaxClustersWithSeries: Ends are those of all such
	// clusters together.
	OwnSeries bool
	*Ends

	Leases Leases // held now

	users int // records and leaves; guarded by the ledger's mu
}

// Ends are how leases and ejections ended.
type Ends struct {
	Outcomes  Outcomes
	Ejections Tally[bool] // of outlier detection, by whether they were enforced
}

func newTotals(cluster string) *Totals {
	t := &Totals{Name: cluster, Ends: new(Ends)}
	t.Leases.init(cluster)
	return t
}

// Tally counts by a key of a few values, which are known beforehand: a new one
// costs a copy. Counting takes no lock once the key is known. The zero tally is empty.
type Tally[K comparable] struct {
	counts atomic.Pointer[map[K]*atomic.Uint64] // replaced, never changed
	mu     sync.Mutex                           // held to replace counts
}

// Add counts one of k.
func (t *Tally[K]) Add(k K) {
	n := t.known()[k]
	if n == nil {
		n = t.grow(k)
	}
	n.Add(1)
}

func (t *Tally[K]) known() map[K]*atomic.Uint64 {
	if m := t.counts.Load(); m != nil {
		return *m
	}
	return nil
}

func (t *Tally[K]) grow(k K) *atomic.Uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := t.known()[k]; n != nil {
		return n
	}
	grown := map[K]*atomic.Uint64{k: new(atomic.Uint64)}
	maps.Copy(grown, t.known())
	t.counts.Store(&grown)
	return grown[k]
}

// All yields every count.
func (t *Tally[K]) All() iter.Seq2[K, uint64] {
	return func(yield func(K, uint64) bool) {
		for k, n := range t.known() {
			if !yield(k, n.Load()) {
				return
			}
		}
	}
}

// Total is the sum of every count.
func (t *Tally[K]) Total() (sum uint64) {
	for _, n := range t.known() {
		sum += n.Load()
	}
	return sum
}

type place struct {
	priority int
	locality resource.Locality
}

// places counts the successful picks of each place of a config. The map is never changed,
// so that picks read it without a lock.
type places map[place]*policy.Place

// update returns the places of a newer config, which has these localities, and those that
// are left over. A place that both have keeps its count; add makes the others. One that comes
// back later begins at zero.
func (p places) update(
	localities iter.Seq2[int, *resource.LocalityEndpoints], add func(resource.Locality, int) *policy.Place,
) (next, left places) {
	next = make(places, len(p))
	for priority, l := range localities {
		at := place{priority, l.ID}
		n := p[at]
		if n == nil {
			n = add(l.ID, priority)
		}
		next[at] = n
	}
	left = maps.Clone(p)
	maps.DeleteFunc(left, func(at place, _ *policy.Place) bool { return next[at] != nil })
	return next, left
}

// Count is how many picks went to a place.
func (p places) Count(priority int, l resource.Locality) uint64 {
	if n := p[place{priority, l}]; n != nil {
		return n.Count()
	}
	return 0
}

// Each calls f with every place and how many picks went there.
func (p places) Each(f func(priority int, l resource.Locality, n uint64)) {
	for at, n := range p {
		f(at.priority, at.locality, n.Count())
	}
}

// Total is how many picks went to all places.
func (p places) Total() (sum uint64) {
	for _, n := range p {
		sum += n.Count()
	}
	return sum
}
