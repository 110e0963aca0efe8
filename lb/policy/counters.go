package policy

import (
	"math"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Breaker counts the requests in flight of one {cluster, EDS service name} in the
// process. Each picker has its own limit (gRFC A32).
type Breaker struct {
	inFlight atomic.Int64
	rejected atomic.Uint64
	full     atomic.Bool // since Filled, until Eased
}

// acquire takes one request unless limit are in flight. Concurrent calls never exceed the
// limit. first reports that no other request was in flight.
func (b *Breaker) acquire(limit uint32) (first, ok bool) {
	for {
		n := b.inFlight.Load()
		if n >= int64(limit) {
			return false, false
		}
		if b.inFlight.CompareAndSwap(n, n+1) {
			return n == 0, true
		}
	}
}

// release returns one request. last reports that no other request is in flight.
func (b *Breaker) release() (last bool) { return b.inFlight.Add(-1) == 0 }

// InFlight returns the number of requests in flight.
func (b *Breaker) InFlight() int64 { return b.inFlight.Load() }

// Reject counts a pick that the breaker rejected.
func (b *Breaker) Reject() { b.rejected.Add(1) }

// Rejected returns the number of picks that the breaker rejected.
func (b *Breaker) Rejected() uint64 { return b.rejected.Load() }

// Filled reports whether limit requests are in flight, for the first time since Eased.
func (b *Breaker) Filled(limit uint32) bool {
	return !b.full.Load() && b.InFlight() >= int64(limit) && b.full.CompareAndSwap(false, true)
}

// Eased reports whether a fifth of limit is free again after Filled. With less, a
// breaker at its limit would be full again with the next request.
func (b *Breaker) Eased(limit uint32) bool {
	if !b.full.Load() {
		return false
	}
	n := b.InFlight()
	return n < int64(limit) && 5*n <= 4*int64(limit) && b.full.CompareAndSwap(true, false)
}

// ClusterCounters are the counters of one {cluster, EDS service name}.
type ClusterCounters struct {
	Breaker Breaker
	Ceiling Ceiling // next to Breaker, with which it is read

	// Fixed after Acquire.
	key    resource.ServiceKey
	owner  *Counters
	shared *SharedLimit // nil in a process without a fleet

	// refs are those of Acquire. The counters are also in use while requests are in flight.
	refs       atomic.Int64
	metrics    atomic.Pointer[resource.LoadMetrics]
	unplaced   atomic.Uint64
	fleetLimit atomic.Bool // the limit is that of shared

	mu         sync.Mutex // guards what follows, not what is counted
	drops      few.Map[string, *dropCount]
	localities few.Map[unique.Handle[resource.Locality], *LocalityLoad]
	retired    uint64      // how many retirements there were
	forgotten  uint64      // what those of drops and localities counted that are deleted
	reader     *LoadReader // of load reports, where there are any
}

// Drop returns the counter of a drop category, which it creates if necessary.
func (c *ClusterCounters) Drop(category string) *atomic.Uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &c.drop(category).count
}

// Locality returns the load of a locality, which it creates if necessary.
func (c *ClusterCounters) Locality(l resource.Locality) *LocalityLoad {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locality(l)
}

// NewPlace returns a Place of a locality without picks, next to the load of the locality if
// it is its first.
func (c *ClusterCounters) NewPlace(l resource.Locality, priority int) *Place {
	c.mu.Lock()
	defer c.mu.Unlock()
	load := c.locality(l)
	if load.placed {
		return NewPlace(priority)
	}
	load.placed, load.place.Priority = true, priority
	return &load.place
}

// Drops returns the count of each drop category.
func (c *ClusterCounters) Drops() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]uint64, c.drops.Len())
	for k, d := range c.drops.All() {
		out[k] = d.count.Load()
	}
	return out
}

// Loads returns the load of each locality.
func (c *ClusterCounters) Loads() map[resource.Locality]resource.LoadCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[resource.Locality]resource.LoadCounts, c.localities.Len())
	for k, l := range c.localities.All() {
		out[k.Value()] = l.Counts()
	}
	return out
}

// Unplaced counts a pick that passed drops and breaker, but for which the READY child
// had no endpoint.
func (c *ClusterCounters) Unplaced() { c.unplaced.Add(1) }

// Judged returns the number of picks that reached drops and breaker in any tree:
// dropped, rejected, issued in a locality, or unplaced. It never decreases. It sums
// other counts, because another counter would be one more shared write for each pick.
func (c *ClusterCounters) Judged() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.forgotten + c.Breaker.Rejected() + c.unplaced.Load()
	for _, d := range c.drops.All() {
		sum += d.count.Load()
	}
	for _, l := range c.localities.All() {
		sum += l.Counts().Issued
	}
	return sum
}

// Key returns what the counters are of.
func (c *ClusterCounters) Key() resource.ServiceKey { return c.key }

// SetFleetLimit sets whether the limit is one of the fleet. It has no effect in a process that belongs to
// none.
func (c *ClusterCounters) SetFleetLimit(on bool) {
	if on = on && c.shared != nil; c.fleetLimit.Load() != on {
		c.fleetLimit.Store(on)
	}
}

// SharedLimit returns the part of the limit that this process may use if the limit is one of a fleet;
// nil if the process belongs to none.
func (c *ClusterCounters) SharedLimit() *SharedLimit { return c.shared }

// Metrics sets the metrics of upstreams that are counted; nil for none.
func (c *ClusterCounters) Metrics(m *resource.LoadMetrics) { c.metrics.Store(m) }

// Hold takes one request of the breaker, unless limit are in flight. The counters remain
// while it is in flight. [Held.Finish] or [ClusterCounters.Unhold] releases it.
func (c *ClusterCounters) Hold(limit uint32) bool {
	first, ok := c.Breaker.acquire(limit)
	if first && c.refs.Load() == 0 { // a pick of a picker that the tree has released
		c.owner.remember(c)
	}
	return ok
}

// Unhold reverts [ClusterCounters.Hold].
func (c *ClusterCounters) Unhold() {
	if c.Breaker.release() && c.refs.Load() == 0 {
		c.owner.forget(c)
	}
}

// Adopt takes one request of a lease of an earlier process, also above the limit. A lost one is not under the Ceiling.
func (c *ClusterCounters) Adopt(lost bool) Held {
	c.Hold(math.MaxUint32)
	h := Held{counters: c}
	if lost {
		c.Ceiling.lost.Add(1)
		h.finishers[0] = &c.Ceiling
	}
	return h
}

// Release releases a reference of [Counters.Acquire].
func (c *ClusterCounters) Release() {
	if c.refs.Add(-1) == 0 && c.Breaker.InFlight() == 0 {
		c.owner.forget(c)
	}
}

// used reports whether there are references or requests in flight. Of the last reference
// and the last request, at least the one that ends later sees that there are none.
func (c *ClusterCounters) used() bool { return c.refs.Load() > 0 || c.Breaker.InFlight() > 0 }

// Counters holds the counters of each {cluster, EDS service name} of the process.
// Trees and leases have references, so a cluster that is removed while it has leases
// gets its counters back when it is added again.
type Counters struct {
	fleet bool // fixed before Acquire

	mu       sync.Mutex
	clusters map[resource.ServiceKey]*ClusterCounters
}

// NewCounters returns an empty Counters.
func NewCounters() *Counters {
	return &Counters{clusters: make(map[resource.ServiceKey]*ClusterCounters)}
}

// JoinFleet makes the process one of a fleet, whose limits apply to clusters with FleetLimit. It must be
// called before Acquire.
func (c *Counters) JoinFleet() { c.fleet = true }

// Acquire returns the counters of key, with a reference.
func (c *Counters) Acquire(key resource.ServiceKey) *ClusterCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	cc := c.clusters[key]
	if cc == nil {
		cc = &ClusterCounters{key: key, owner: c}
		if c.fleet {
			cc.shared = new(SharedLimit)
		}
		c.clusters[key] = cc
	}
	cc.refs.Add(1)
	return cc
}

// forget deletes counters that are not used, unless they are again.
func (c *Counters) forget(cc *ClusterCounters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !cc.used() && c.clusters[cc.key] == cc {
		delete(c.clusters, cc.key)
	}
}

// remember adds counters that were deleted, unless their cluster has others now.
func (c *Counters) remember(cc *ClusterCounters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters[cc.key] == nil {
		c.clusters[cc.key] = cc
	}
}

// Get returns the counters of key for reading, or nil.
func (c *Counters) Get(key resource.ServiceKey) *ClusterCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clusters[key]
}
