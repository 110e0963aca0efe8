package foreign

import "sync"

// calls holds what a policy has called, from whichever goroutine, until the owner
// has run it: all of it in the order of the calls. Of those that the policy makes
// while the owner is in it nobody can tell which goroutine makes them. The owner
// runs them before it leaves the policy, one after another: what they call in turn
// waits at the end, so that nothing is called from within a call.
type calls struct {
	post func(func()) // to the owner

	mu      sync.Mutex
	waiting []func()
	inside  bool // the owner will run what waits before it leaves the policy
	closed  bool // nothing is run any more
}

// add lets the owner run f. It reports false, and drops f, after close.
func (c *calls) add(f func()) bool {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.waiting = append(c.waiting, f)
	}
	wake := len(c.waiting) == 1 && !c.inside // else the owner comes anyway
	c.mu.Unlock()
	if wake {
		c.post(func() { c.within(func() {}) })
	}
	return !closed
}

// close runs what waits; nothing comes after it. The owner must not be inside.
func (c *calls) close() {
	c.within(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
	})
}

// within lets the owner run f, which calls the policy, and then all that the
// policy has called.
func (c *calls) within(f func()) {
	if !c.enter() {
		f()
		return
	}
	f()
	for {
		batch := c.take()
		if batch == nil {
			return
		}
		for _, call := range batch {
			call()
		}
	}
}

// enter reports false where the owner is inside already.
func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.inside
	c.inside = true
	return !was
}

// take returns what waits. With nothing the owner has left.
func (c *calls) take() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := c.waiting
	c.waiting = nil
	c.inside = batch != nil
	return batch
}
