// Package wake lets goroutines wait until another one has something for them.
package wake

import "sync/atomic"

// One wakes one goroutine, which receives from it. Wakes that it has not received yet are one.
type One chan struct{}

// NewOne returns a One that was not woken.
func NewOne() One { return make(One, 1) }

// Wake never blocks.
func (o One) Wake() {
	select {
	case o <- struct{}{}:
	default:
	}
}

// All wakes any number of goroutines when something has changed. Its methods may be
// called from any goroutine; without waiters, Notify is one atomic load. The zero All
// is ready for use.
type All struct{ waiters atomic.Pointer[chan struct{}] }

// Wait returns a channel that the next Notify closes. Call it before you read what may
// change: a change after the read then closes the channel.
func (a *All) Wait() <-chan struct{} {
	for {
		if c := a.waiters.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if a.waiters.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// Notify wakes all waiters. Call it after the change.
func (a *All) Notify() {
	if a.waiters.Load() == nil {
		return
	}
	if c := a.waiters.Swap(nil); c != nil {
		close(*c)
	}
}
