package policy

import (
	"fmt"

	"github.com/lbd-dev/lbd/xds/resource"
)

// LoadReader reads the load of one {cluster, EDS service name} since the last
// acknowledged reading, for reports: nothing is reported twice or lost. It belongs to
// one goroutine at a time.
type LoadReader struct {
	counters *ClusterCounters // fixed

	// Guarded by counters.mu.

	reported, read uint64 // what the circuit breaker refused: as in dropCount
	drops          []*dropCount
	localities     []*LocalityLoad
}

// ReadLoad returns the reader of the counts for key from now on. A key has one reader at
// most, which keeps the counters until it is closed.
func (c *Counters) ReadLoad(key resource.ServiceKey) *LoadReader {
	cc := c.Acquire(key)
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if cc.reader != nil {
		panic(fmt.Sprintf("policy: the load of %+v is read already", key))
	}
	for _, d := range cc.drops.All() {
		d.reported = d.count.Load()
	}
	for _, l := range cc.localities.All() {
		l.reported = l.Counts()
		l.metrics.take()
		l.metrics.acknowledge()
	}
	rejected := cc.Breaker.Rejected()
	cc.reader = &LoadReader{counters: cc, reported: rejected, read: rejected}
	return cc.reader
}

// Read returns the load since the last acknowledged reading. Drops without a category
// and of the circuit breaker are in the total only.
func (r *LoadReader) Read() resource.Load {
	c := r.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	r.drops, r.localities = r.drops[:0], r.localities[:0]
	r.read = c.Breaker.Rejected()
	out := resource.Load{Dropped: r.read - r.reported}
	for category, d := range c.drops.All() {
		d.read = d.count.Load()
		n := d.read - d.reported
		if n == 0 {
			continue
		}
		r.drops = append(r.drops, d)
		out.Dropped += n
		if category == "" {
			continue
		}
		if out.Drops == nil {
			out.Drops = make(map[string]uint64)
		}
		out.Drops[category] = n
	}
	for id, l := range c.localities.All() {
		l.read = l.Counts()
		n := l.read.Since(l.reported)
		if n == (resource.LoadCounts{}) {
			continue
		}
		r.localities = append(r.localities, l)
		out.Localities = append(out.Localities, resource.LocalityLoad{
			Locality: id.Value(), LoadCounts: n, Metrics: l.metrics.take(),
		})
	}
	return out
}

// Acknowledge confirms that the last reading was reported.
func (r *LoadReader) Acknowledge() {
	c := r.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	r.reported = r.read
	for _, d := range r.drops {
		d.reported = d.read
	}
	for _, l := range r.localities {
		l.reported = l.read
		l.metrics.acknowledge()
	}
	r.drops, r.localities = nil, nil
}

// Close releases the counters.
func (r *LoadReader) Close() {
	r.counters.mu.Lock()
	r.counters.reader = nil
	r.counters.mu.Unlock()
	r.counters.Release()
}
