package policy

import (
	"sync/atomic"
	"time"
)

// Ceiling is how many requests this process may have in flight, and for how long, according to what a
// process that is started after a crash reads. One goroutine at a time sets it; picks read it. It takes no
// lock: a pick takes its request of the [Breaker] first, and asks then, and who lowers the ceiling looks at
// the requests in flight after that. So at least one of both sees the other.
type Ceiling struct {
	requests atomic.Int64
	ttl      atomic.Int64 // time.Duration
}

// Covers reports whether the ceiling has so many requests in flight, one of which has a ttl.
func (c *Ceiling) Covers(inFlight int64, ttl time.Duration) bool {
	return inFlight <= c.requests.Load() && int64(ttl) <= c.ttl.Load()
}

// Set replaces the ceiling.
func (c *Ceiling) Set(requests int64, ttl time.Duration) {
	c.requests.Store(requests)
	c.ttl.Store(int64(ttl))
}
