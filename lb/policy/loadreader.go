package policy

import (
	"fmt"

	"github.com/lbd-dev/lbd/xds/resource"
)

// LoadReader reads the load of one {cluster, EDS service name} for reports: what
// was counted since the last reading that was acknowledged, so that nothing is
// reported twice and nothing is lost. It belongs to one goroutine at a time.
type LoadReader struct {
	counters *ClusterCounters // fixed

	// Guarded by counters.mu.

	reported, read uint64 // what the circuit breaker refused: as in dropCount
	// What the last reading found load in.
	drops      []*dropCount
	localities []*LocalityLoad
}

// ReadLoad returns a reader of what is counted for key from now on. It keeps the
// counters until it is closed. There is one at a time for each key.
func (c *Counters) ReadLoad(key ServiceKey) *LoadReader {
	cc := c.Acquire(key)
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if cc.reader != nil {
		panic(fmt.Sprintf("policy: the load of %+v is read already", key))
	}
	for _, d := range cc.drops {
		d.reported = d.count.Load()
	}
	for _, l := range cc.localities {
		l.reported = l.Counts()
		l.metrics.reset()
	}
	rejected := cc.Breaker.Rejected()
	cc.reader = &LoadReader{counters: cc, reported: rejected, read: rejected}
	return cc.reader
}

// Read returns the load since the last reading that was acknowledged. Drops
// without category are in the total only, as those of the circuit breaker.
func (r *LoadReader) Read() resource.Load {
	c := r.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	r.drops, r.localities = r.drops[:0], r.localities[:0]
	r.read = c.Breaker.Rejected()
	out := resource.Load{Dropped: r.read - r.reported}
	for category, d := range c.drops {
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
	for id, l := range c.localities {
		l.read = l.Counts()
		n := l.read.since(l.reported)
		if n == (LoadCounts{}) {
			continue
		}
		r.localities = append(r.localities, l)
		out.Localities = append(out.Localities, resource.LocalityLoad{
			Locality:   id,
			Issued:     n.Issued,
			Succeeded:  n.Succeeded,
			Failed:     n.Failed,
			InProgress: uint64(n.InProgress),
			Metrics:    l.metrics.take(),
		})
	}
	return out
}

// Acknowledge says that what the last Read returned has been reported.
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

// Close lets go of the counters. Nothing is read after it.
func (r *LoadReader) Close() {
	r.counters.mu.Lock()
	r.counters.reader = nil
	r.counters.mu.Unlock()
	r.counters.Release()
}
