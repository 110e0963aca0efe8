package policy

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
)

// Ceiling is how many requests this process may have in flight, and for how long, according to what a
// process that is started after a crash reads. One goroutine at a time sets it; picks read it. It takes no
// lock: a pick takes its request of the [Breaker] first, and asks then, and who lowers the ceiling looks at
// the requests in flight, and at the longest ttl, after that. So at least one of both sees the other.
type Ceiling struct {
	longest

	requests atomic.Int64 // besides lost
	ttl      atomic.Int64 // time.Duration
	lost     atomic.Int64
}

// Covers reports whether the ceiling has so many requests in flight, one of which has a ttl.
func (c *Ceiling) Covers(inFlight int64, ttl time.Duration) bool {
	c.Ask(ttl)
	return inFlight-c.lost.Load() <= c.requests.Load() && int64(ttl) <= c.ttl.Load()
}

// Set replaces the ceiling.
func (c *Ceiling) Set(requests int64, ttl time.Duration) {
	c.requests.Store(requests)
	c.ttl.Store(int64(ttl))
}

// Lost returns how many of the requests in flight are of leases that were lost in a crash.
func (c *Ceiling) Lost() int64 { return c.lost.Load() }

// Finish ends a lost request, before that of the Breaker ends: so Covers never counts too few others.
func (c *Ceiling) Finish(Outcome, balancer.DoneInfo) { c.lost.Add(-1) }

// longest is the longest time that was asked for.
type longest struct{ ttl atomic.Int64 }

// Ask notes that a lease is wanted, before it is admitted.
func (l *longest) Ask(ttl time.Duration) {
	for {
		n := l.ttl.Load()
		if int64(ttl) <= n || l.ttl.CompareAndSwap(n, int64(ttl)) {
			return
		}
	}
}

// Longest returns the longest time that was asked for since TakeLongest, which forgets it.
func (l *longest) Longest() time.Duration     { return time.Duration(l.ttl.Load()) }
func (l *longest) TakeLongest() time.Duration { return time.Duration(l.ttl.Swap(0)) }
