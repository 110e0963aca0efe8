package ledger

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/few"
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

	// Refusing finds out whether many picks are refused.
	Refusing Failing
	// Limited is since when drops or limits refuse every pick, with a resolution of a second; nil if some
	// pass.
	Limited atomic.Pointer[time.Time]
	// Ejected is when no endpoint was READY last while outlier detection had ejected some, with a resolution of a second;
	// nil for never.
	Ejected atomic.Pointer[time.Time]

	// unhashed is set by picks without the hash key that the policy needs, and unhashedAt is when
	// SampleUnhashed last found it set.
	unhashed   atomic.Bool
	unhashedAt atomic.Pointer[time.Time]

	stale   atomic.Bool
	ambient atomic.Pointer[Ambient]

	// elsewhere counts successful picks of no place of the newest config. Those of a place
	// that leaves the config move here under mu.
	elsewhere atomic.Uint64
	mu        sync.Mutex
}

// MarkUnhashed records a pick without the hash key that the policy needs. It writes only what picks share if it has to.
func (r *Record) MarkUnhashed() {
	if !r.unhashed.Load() {
		r.unhashed.Store(true)
	}
}

// SampleUnhashed returns when it last found that there were picks without the hash key that the policy needs, since
// the sample before; nil for never.
func (r *Record) SampleUnhashed(now time.Time) *time.Time {
	if r.unhashed.Swap(false) {
		r.unhashedAt.Store(&now)
	}
	return r.unhashedAt.Load()
}

// closePlaces moves the counts of places that have left the config.
func (r *Record) closePlaces(left *places) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range left.All() {
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
	// Failing finds out whether many requests of leases and reports end with an error.
	Failing Failing

	users int // records and leaves; guarded by the ledger's mu
}

// Ends are how leases, reported requests and ejections ended.
type Ends struct {
	Outcomes  Tally[policy.Outcome] // of leases
	Reported  Reported
	Ejections Tally[bool] // of outlier detection, by whether they were enforced
}

func newTotals(cluster string) *Totals {
	t := &Totals{Name: cluster, Ends: new(Ends)}
	t.Leases.cluster, t.Leases.unnamed.Cluster, t.Leases.unnamed.of = cluster, cluster, &t.Leases
	return t
}

// Tally counts by a key of a few values, which are known beforehand: they are a list. Counting
// takes no lock. The zero tally is empty.
type Tally[K comparable] struct {
	last atomic.Pointer[tallied[K]]
}

// tallied is the count of one key. Only the count changes.
type tallied[K comparable] struct {
	key    K
	n      atomic.Uint64
	before *tallied[K]
}

// Add counts one of k.
func (t *Tally[K]) Add(k K) { t.add(k, 1) }

func (t *Tally[K]) add(k K, n uint64) {
	for {
		last := t.last.Load()
		for c := last; c != nil; c = c.before {
			if c.key == k {
				c.n.Add(n)
				return
			}
		}
		t.last.CompareAndSwap(last, &tallied[K]{key: k, before: last})
	}
}

// All yields the counts that are not 0.
func (t *Tally[K]) All() iter.Seq2[K, uint64] {
	return func(yield func(K, uint64) bool) {
		for c := t.last.Load(); c != nil; c = c.before {
			if n := c.n.Load(); n > 0 && !yield(c.key, n) {
				return
			}
		}
	}
}

// Total is the sum of every count.
func (t *Tally[K]) Total() (sum uint64) {
	for _, n := range t.All() {
		sum += n
	}
	return sum
}

type place struct {
	priority int
	locality resource.Locality
}

// places counts the successful picks of each place of a config. It is never changed, so that
// picks read it without a lock.
type places struct {
	few.Map[place, *policy.Place]
}

// update returns the places of a newer config, which has these localities, and those that
// are left over. A place that both have keeps its count; add makes the others. One that comes
// back later begins at zero.
func (p *places) update(
	localities iter.Seq2[int, *resource.LocalityEndpoints], add func(resource.Locality, int) *policy.Place,
) (next, left places) {
	for priority, l := range localities {
		at := place{priority, l.ID}
		n := p.Get(at)
		if n == nil {
			n = add(l.ID, priority)
		}
		next.Set(at, n)
	}
	for at, n := range p.All() {
		if next.Get(at) == nil {
			left.Set(at, n)
		}
	}
	return next, left
}

// Count is how many picks went to a place.
func (p *places) Count(priority int, l resource.Locality) uint64 {
	if n := p.Get(place{priority, l}); n != nil {
		return n.Count()
	}
	return 0
}

// Each calls f with every place and how many picks went there.
func (p *places) Each(f func(priority int, l resource.Locality, n uint64)) {
	for at, n := range p.All() {
		f(at.priority, at.locality, n.Count())
	}
}

// Total is how many picks went to all places.
func (p *places) Total() (sum uint64) {
	for _, n := range p.All() {
		sum += n.Count()
	}
	return sum
}
