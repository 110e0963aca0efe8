package policy

import (
	"sync"
	"sync/atomic"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Breaker counts the requests in flight of one {cluster, EDS service name}, for
// the whole process. Each picker brings its own limit (gRFC A32).
type Breaker struct {
	inFlight atomic.Int64
	rejected atomic.Uint64
	full     atomic.Bool // since Filled, until Eased
}

// TryAcquire takes one request unless limit are in flight. The limit holds
// exactly, however many ask at once.
func (b *Breaker) TryAcquire(limit uint32) bool {
	for {
		n := b.inFlight.Load()
		if n >= int64(limit) {
			return false
		}
		if b.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives one request back.
func (b *Breaker) Release() { b.inFlight.Add(-1) }

// InFlight is how many requests are held now.
func (b *Breaker) InFlight() int64 { return b.inFlight.Load() }

// Reject counts a pick that the breaker refused.
func (b *Breaker) Reject() { b.rejected.Add(1) }

// Rejected is how many picks the breaker refused.
func (b *Breaker) Rejected() uint64 { return b.rejected.Load() }

// Filled reports whether limit requests are in flight, and were not since Eased.
func (b *Breaker) Filled(limit uint32) bool {
	return !b.full.Load() && b.InFlight() >= int64(limit) && b.full.CompareAndSwap(false, true)
}

// Eased reports whether the breaker was full, and has a fifth of limit free again: with
// less, one that is just at its limit would be full again with the next request.
func (b *Breaker) Eased(limit uint32) bool {
	if !b.full.Load() {
		return false
	}
	n := b.InFlight()
	return n < int64(limit) && 5*n <= 4*int64(limit) && b.full.CompareAndSwap(true, false)
}

// ServiceKey names what counters are kept for.
type ServiceKey struct {
	Cluster string
	// EDSServiceName is empty where it is the cluster's own name.
	EDSServiceName string
}

// ClusterCounters are the counters of one {cluster, EDS service name}.
type ClusterCounters struct {
	Breaker Breaker

	// Fixed after Acquire.
	key   ServiceKey
	owner *Counters

	refs    atomic.Int64
	metrics atomic.Pointer[resource.LoadMetrics]
	// unplaced is what [ClusterCounters.Unplaced] counted.
	unplaced atomic.Uint64

	mu         sync.Mutex // guards what follows, not what is counted
	drops      map[string]*dropCount
	localities map[resource.Locality]*LocalityLoad
	retired    uint64      // how many retirements there were
	forgotten  uint64      // what those of drops and localities counted that are deleted
	reader     *LoadReader // of load reports, where there are any
}

// Drop returns the counter of a drop category, made on first use.
func (c *ClusterCounters) Drop(category string) *atomic.Uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &c.drop(category).count
}

// Locality returns the load of a locality, made on first use.
func (c *ClusterCounters) Locality(l resource.Locality) *LocalityLoad {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locality(l)
}

// Drops reads every drop category's count.
func (c *ClusterCounters) Drops() map[string]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]uint64, len(c.drops))
	for k, d := range c.drops {
		out[k] = d.count.Load()
	}
	return out
}

// Loads reads every locality's load.
func (c *ClusterCounters) Loads() map[resource.Locality]LoadCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[resource.Locality]LoadCounts, len(c.localities))
	for k, l := range c.localities {
		out[k] = l.Counts()
	}
	return out
}

// Unplaced counts a pick that drops and breaker let pass, and that is counted in
// no locality: the child, which was READY, had no endpoint for it.
func (c *ClusterCounters) Unplaced() { c.unplaced.Add(1) }

// Judged is how many picks came to the drop categories and the circuit breaker,
// in whichever tree: what was dropped, refused, issued in a locality, or unplaced.
// It only grows. It is the sum of what is counted anyway: a count of its own
// would cost each pick one more write that all processors share.
func (c *ClusterCounters) Judged() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.forgotten + c.Breaker.Rejected() + c.unplaced.Load()
	for _, d := range c.drops {
		sum += d.count.Load()
	}
	for _, l := range c.localities {
		sum += l.Counts().Issued
	}
	return sum
}

// Metrics says which metrics of upstreams count from now on; nil for none.
func (c *ClusterCounters) Metrics(m *resource.LoadMetrics) { c.metrics.Store(m) }

// Hold takes one request of the breaker unless limit are in flight, and with
// it a reference. [Held.Finish] or [ClusterCounters.Unhold] gives both back.
func (c *ClusterCounters) Hold(limit uint32) bool {
	if !c.Breaker.TryAcquire(limit) {
		return false
	}
	if c.refs.Add(1) == 1 { // a pick of a picker that the tree has let go of
		c.owner.remember(c)
	}
	return true
}

// Unhold gives back what [ClusterCounters.Hold] took.
func (c *ClusterCounters) Unhold() {
	c.Breaker.Release()
	c.Release()
}

// Release gives back one reference of [Counters.Acquire].
func (c *ClusterCounters) Release() {
	if c.refs.Add(-1) == 0 {
		c.owner.forget(c)
	}
}

// Counters holds the counters of every {cluster, EDS service name} of the
// process. Trees and leases hold references: a cluster that is removed while
// leases are held and comes back finds its own.
type Counters struct {
	mu       sync.Mutex
	clusters map[ServiceKey]*ClusterCounters
}

// NewCounters returns an empty Counters.
func NewCounters() *Counters {
	return &Counters{clusters: make(map[ServiceKey]*ClusterCounters)}
}

// Acquire returns the counters of key, with one reference for the caller.
func (c *Counters) Acquire(key ServiceKey) *ClusterCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	cc := c.clusters[key]
	if cc == nil {
		cc = &ClusterCounters{
			key:        key,
			owner:      c,
			drops:      make(map[string]*dropCount),
			localities: make(map[resource.Locality]*LocalityLoad),
		}
		c.clusters[key] = cc
	}
	cc.refs.Add(1)
	return cc
}

// forget drops counters without references. Whoever acquired them in the
// meantime keeps them.
func (c *Counters) forget(cc *ClusterCounters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cc.refs.Load() == 0 && c.clusters[cc.key] == cc {
		delete(c.clusters, cc.key)
	}
}

// remember takes counters back that were forgotten, unless their cluster has got
// others in the meantime.
func (c *Counters) remember(cc *ClusterCounters) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusters[cc.key] == nil {
		c.clusters[cc.key] = cc
	}
}

// Get returns the counters of key for reading, or nil where nobody has
// acquired them.
func (c *Counters) Get(key ServiceKey) *ClusterCounters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clusters[key]
}
