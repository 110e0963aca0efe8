package lrs_test

import (
	"sync"
	"testing"

	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// counts has the load of clusters.
type counts struct {
	mu     sync.Mutex
	of     map[resource.ServiceKey]*count
	opened int
}

// count is the load of one cluster, in one locality.
type count struct {
	all *counts

	// Guarded by all.mu.
	now, read, reported resource.LoadCounts
	dropped             [3]uint64 // now, read, reported
	open                bool
}

func (c *counts) get(key resource.ServiceKey) *count {
	if c.of[key] == nil {
		c.of[key] = &count{all: c}
	}
	return c.of[key]
}

func (c *counts) Open(key resource.ServiceKey) lrs.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.get(key)
	if one.open {
		panic("opened twice")
	}
	one.open = true
	one.reported, one.dropped[2] = one.now, one.dropped[0]
	c.opened++
	return one
}

// add adds to a cluster's load.
func (c *counts) add(cluster string, issued, succeeded, failed int) {
	c.addTo(keys(cluster)[0], issued, succeeded, failed)
}

func (c *counts) addTo(key resource.ServiceKey, issued, succeeded, failed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.get(key).now
	l.Issued += uint64(issued)
	l.Succeeded += uint64(succeeded)
	l.Failed += uint64(failed)
	l.InProgress += uint64(issued - succeeded - failed)
}

func (c *counts) drop(cluster string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.get(keys(cluster)[0]).dropped[0] += uint64(n)
}

// open returns the number of open counters.
func (c *counts) open() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.of {
		if one.open {
			n++
		}
	}
	return n
}

func (c *counts) allClosed(t *testing.T) {
	t.Helper()
	if n := c.open(); n > 0 {
		t.Errorf("%d counters are not closed", n)
	}
}

func (c *count) Read() resource.Load {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if !c.open {
		panic("read after Close")
	}
	c.read, c.dropped[1] = c.now, c.dropped[0]
	l := resource.LocalityLoad{
		Locality: resource.Locality{Region: "r", Zone: "z", SubZone: "s"}, LoadCounts: c.read.Since(c.reported),
	}
	out := resource.Load{Dropped: c.dropped[1] - c.dropped[2]}
	if out.Dropped > 0 {
		out.Drops = map[string]uint64{"x": out.Dropped}
	}
	if l.LoadCounts != (resource.LoadCounts{}) {
		out.Localities = []resource.LocalityLoad{l}
	}
	return out
}

func (c *count) Acknowledge() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.reported, c.dropped[2] = c.read, c.dropped[1]
}

func (c *count) Close() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if !c.open {
		panic("closed twice")
	}
	c.open = false
}

// isOpen reports whether the counters of a cluster are open.
func (c *counts) isOpen(cluster string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get(keys(cluster)[0]).open
}
