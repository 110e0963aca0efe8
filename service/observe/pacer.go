package observe

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

const (
	// paceInterval is the mean time between two turns: about what it takes to write a message of
	// 64 KiB.
	paceInterval = 50 * time.Microsecond
	// paceBurst is the number of turns that may come at once.
	paceBurst = 16
)

// newPace returns what spreads the work of watchers that are notified at once, so that picks do not wait
// until all watchers have written.
func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(paceInterval), paceBurst) }

// subscribers are the watchers of a feed, which are notified in groups. Unlike with
// [wake.All], not all of them are runnable at once.
type subscribers struct {
	pace *rate.Limiter

	mu  sync.Mutex
	all []*subscriber
}

// subscriber is a watcher.
type subscriber struct {
	from   *subscribers
	notify atomic.Pointer[func()] // nil before the first notifyWith
}

// subscribed is that of [feed], for feeds that embed their subscribers.
func (s *subscribers) subscribed() *subscribers { return s }

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
		_ = s.pace.WaitN(ctx, len(group)) // an error ends the waits
		for _, w := range group {
			if f := w.notify.Load(); f != nil {
				(*f)()
			}
		}
	}
}
