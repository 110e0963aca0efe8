package overlays

import (
	"sync"
	"time"
)

// Expiry calls a function when the next overlay expires. Its methods may be called from any goroutine.
type Expiry struct {
	// Expire is set before Set is called. It is called in a goroutine of its own, one at a time.
	Expire func()

	mu      sync.Mutex
	timer   *time.Timer // nil if none is set
	closed  bool
	running sync.WaitGroup
	turn    sync.Mutex // held while Expire runs
}

// maxSleep is the longest time after which the clock is looked at again: it may be set.
const maxSleep = time.Minute

// Set sets the time at which Expire is called, or before; zero is never. It replaces the time before.
func (e *Expiry) Set(next time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer != nil && e.timer.Stop() {
		e.running.Done()
	}
	e.timer = nil
	if next.IsZero() || e.closed {
		return
	}
	e.running.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(min(time.Until(next), maxSleep), func() {
		defer e.running.Done()
		e.turn.Lock()
		defer e.turn.Unlock()
		e.mu.Lock()
		replaced := e.timer != timer
		e.mu.Unlock()
		if !replaced {
			e.Expire()
		}
	})
	e.timer = timer
}

// Close ends the calls, and waits for the one that runs.
func (e *Expiry) Close() {
	e.Set(time.Time{})
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.running.Wait()
}
