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

// deliver sends the batch on, if there is one. It is for the owner.
func (a *authority) deliver(r *receipt) {
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
		a.client.running.Go(a.carry)
	}
}

// carry calls OnUpdate until the client is closed.
func (a *authority) carry() {
	for {
		select {
		case <-a.client.ctx.Done():
			return
		case <-a.outbox.wake:
		}
		for _, d := range a.outbox.take() {
			if a.client.ctx.Err() != nil {
				return
			}
			a.client.options.OnUpdate(d.updates)
			if d.receipt != nil {
				d.receipt.release()
			}
		}
	}
}
