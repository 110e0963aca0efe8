package lb

import "sync/atomic"

// Signal wakes any number of goroutines when something has changed. Its methods may be
// called from any goroutine; without waiters, Notify is one atomic load. The zero Signal
// is ready for use.
type Signal struct{ waiters atomic.Pointer[chan struct{}] }

// Wait returns a channel that the next Notify closes. Call it before you read what may
// change: a change after the read then closes the channel.
func (s *Signal) Wait() <-chan struct{} {
	for {
		if c := s.waiters.Load(); c != nil {
			return *c
		}
		c := make(chan struct{})
		if s.waiters.CompareAndSwap(nil, &c) {
			return c
		}
	}
}

// Notify wakes all waiters. Call it after the change.
func (s *Signal) Notify() {
	if s.waiters.Load() == nil {
		return
	}
	if c := s.waiters.Swap(nil); c != nil {
		close(*c)
	}
}
