package observe

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// paceInterval is the mean time between two turns: about what it takes to write a message of
	// 64 KiB.
	paceInterval = 50 * time.Microsecond
	// paceBurst is the number of turns that may come at once.
	paceBurst = 16
)

// pacer spreads the work of watchers that are notified at once, so that picks do not wait until all
// watchers have written. It is a GCRA (generic cell rate algorithm) that delays.
type pacer struct {
	begin time.Time
	next  atomic.Int64 // when the next turn is due, in nanoseconds since begin
}

// wait waits for n turns of the caller. The error is the cause of the end of ctx.
func (p *pacer) wait(ctx context.Context, n int) error {
	now := int64(time.Since(p.begin))
	due := p.next.Load()
	for !p.next.CompareAndSwap(due, max(due, now)+int64(n)*int64(paceInterval)) {
		due = p.next.Load()
	}
	delay := due - now - int64(paceBurst*paceInterval)
	if delay <= 0 {
		return nil
	}
	timer := time.NewTimer(time.Duration(delay))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// subscribers are the watchers of a feed, which are notified in groups. Unlike with
// [lb.Signal], not all of them are runnable at once.
type subscribers struct {
	pace *pacer

	mu  sync.Mutex
	all []*subscriber
}

// subscriber is a watcher.
type subscriber struct {
	from   *subscribers
	notify atomic.Pointer[func()] // nil before the first notifyWith
}

func (s *subscribers) add() *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &subscriber{from: s}
	s.all = append(s.all, w)
	return w
}

func (w *subscriber) notifyWith(f func()) { w.notify.Store(&f) }

func (w *subscriber) close() {
	s := w.from
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.all, w); i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
	}
}

// notify notifies all. It takes as long as their turns, and does not wait when ctx ends.
func (s *subscribers) notify(ctx context.Context) {
	s.mu.Lock()
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for group := range slices.Chunk(all, paceBurst) {
		_ = s.pace.wait(ctx, len(group)) // an error ends the waits
		for _, w := range group {
			if f := w.notify.Load(); f != nil {
				(*f)()
			}
		}
	}
}
