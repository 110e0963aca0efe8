package client

import "sync/atomic"

// delivery is a batch of updates on its way to OnUpdate.
type delivery struct {
	updates []Update
	receipt *receipt // nil where nobody waits
}

// receipt tells a runner that all that came of a response was taken.
type receipt struct {
	open  atomic.Int32
	taken chan struct{} // closed
}

func newReceipt() *receipt {
	r := &receipt{taken: make(chan struct{})}
	r.open.Store(1)
	return r
}

func (r *receipt) add() { r.open.Add(1) }

func (r *receipt) release() {
	if r.open.Add(-1) == 0 {
		close(r.taken)
	}
}

// deliver puts the batch of each authority into its outbox. It is for the owner.
func (c *Client) deliver(r *receipt) {
	for _, a := range c.allConfigs {
		c.deliverTo(a, r)
	}
}

func (c *Client) deliverTo(a *authorityConfig, r *receipt) {
	if len(a.batch) == 0 {
		return
	}
	if r != nil {
		r.add()
	}
	a.outbox.put(delivery{updates: a.batch, receipt: r})
	a.batch = nil
	if !a.started {
		a.started = true
		c.running.Go(func() { c.carry(a) })
	}
}

// carry calls OnUpdate until the client is closed.
func (c *Client) carry(a *authorityConfig) {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-a.outbox.wake:
		}
		for _, d := range a.outbox.take() {
			if c.ctx.Err() != nil {
				return
			}
			c.options.OnUpdate(d.updates)
			if d.receipt != nil {
				d.receipt.release()
			}
		}
	}
}
