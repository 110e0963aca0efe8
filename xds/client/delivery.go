package client

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lbd-dev/lbd/xds/wake"
)

// updateQueue passes the updates of one authority of the bootstrap to OnUpdate, in order.
type updateQueue struct {
	batches *queue[updateBatch]

	pending []Update // owner only: not yet in batches
}

type updateBatch struct {
	updates []Update
	receipt *receipt // nil if nothing waits for it
}

// receipt is open until all updates of a response were taken.
type receipt struct {
	open  atomic.Int32  // references
	taken chan struct{} // closed with the last reference
}

func (r *receipt) release() {
	if r.open.Add(-1) == 0 {
		close(r.taken)
	}
}

// flush queues the pending updates as one batch. The receipt may be nil.
func (q *updateQueue) flush(r *receipt) {
	if len(q.pending) == 0 {
		return
	}
	if r != nil {
		r.open.Add(1)
	}
	q.batches.put(updateBatch{updates: q.pending, receipt: r})
	q.pending = nil
}

func (q *updateQueue) run(ctx context.Context, onUpdate func([]Update)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.batches.ready:
		}
		for _, b := range q.batches.take() {
			if ctx.Err() != nil {
				return
			}
			onUpdate(b.updates)
			if b.receipt != nil {
				b.receipt.release()
			}
		}
	}
}

// queue is an unbounded FIFO queue: put never blocks. One goroutine takes.
type queue[T any] struct {
	ready wake.One // after a put

	mu    sync.Mutex
	items []T
}

func newQueue[T any]() *queue[T] { return &queue[T]{ready: wake.NewOne()} }

func (q *queue[T]) put(item T) {
	q.mu.Lock()
	q.items = append(q.items, item)
	q.mu.Unlock()
	q.ready.Wake()
}

// take removes and returns all items, in order.
func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}
