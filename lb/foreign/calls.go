package foreign

import "sync"

// calls holds what a policy has called, from any goroutine, until the owner runs it,
// in order. Calls that the policy makes while the owner is inside it may come from
// another goroutine: the owner runs them before it leaves the policy. The calls that
// result from them are queued, so that no call is made from within another.
type calls struct {
	post func(func()) // to the owner

	mu      sync.Mutex
	waiting []func()
	inside  bool // the owner will run what waits before it leaves the policy
	closed  bool // nothing is run any more
}

// add makes the owner run f. After close, it reports false.
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

// close runs the waiting calls and rejects others. The owner must not be inside.
func (c *calls) close() {
	c.within(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
	})
}

// within lets the owner run f, which calls the policy, and then the policy's calls.
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

// enter reports false if the owner is inside already.
func (c *calls) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.inside
	c.inside = true
	return !was
}

// take returns the waiting calls. If there are none, the owner has left.
func (c *calls) take() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := c.waiting
	c.waiting = nil
	c.inside = batch != nil
	return batch
}
