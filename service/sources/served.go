package sources

import (
	"container/heap"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/xds/wake"
)

// served is the index of the last commit that picks use. A commit becomes that when the trees
// of all targets that it changed have their configs. A tree that takes longer than treeTimeout
// keeps no commit back.
type served struct {
	index atomic.Uint64

	mu       sync.Mutex
	latest   uint64              // index of the last commit that was published
	changed  map[string]struct{} // targets with new configs since index
	settling map[string]struct{} // of these, the ones whose trees are waited for
	waiting  indexWaiters

	wake   wake.One // latest has grown
	ctx    context.Context
	end    context.CancelFunc
	ending sync.WaitGroup
}

// treeTimeout is the time in which trees must have a config, or the index does not wait for them.
const treeTimeout = time.Second

func newServed() *served {
	s := &served{changed: map[string]struct{}{}, settling: map[string]struct{}{}, wake: wake.NewOne()}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// published records a commit whose configs were published to targets.
func (s *served) published(index uint64, targets []string) {
	s.mu.Lock()
	s.latest = max(s.latest, index)
	for _, name := range targets {
		s.changed[name] = struct{}{}
	}
	s.mu.Unlock()
	s.wake.Wake()
}

// newest returns the index of the newest commit that was published.
func (s *served) newest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.latest, s.index.Load())
}

// start begins with an index that picks use, and follows what was published since. settle
// returns when the picks of targets use their newest configs.
func (s *served) start(index uint64, settle func(context.Context, []string) error) {
	s.advance(index)
	s.ending.Go(func() {
		for {
			select {
			case <-s.wake:
			case <-s.ctx.Done():
				return
			}
			s.follow(settle)
		}
	})
}

// follow waits for the trees of what was published, and sets the index.
func (s *served) follow(settle func(context.Context, []string) error) {
	s.mu.Lock()
	latest := s.latest
	s.changed, s.settling = s.settling, s.changed // settling is empty
	targets := slices.Collect(maps.Keys(s.settling))
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.ctx, treeTimeout)
	defer cancel()
	for _, name := range targets {
		_ = settle(ctx, []string{name}) // its error is that of ctx
	}
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	clear(s.settling)
	s.mu.Unlock()
	s.advance(latest)
}

// check sets the index to that of the last commit if all trees have their configs already.
func (s *served) check(settled func(iter.Seq[string]) bool) {
	s.mu.Lock()
	latest := s.latest
	is := settled(maps.Keys(s.changed)) && settled(maps.Keys(s.settling))
	s.mu.Unlock()
	if is {
		s.advance(latest)
	}
}

// advance sets the index, and ends the waits for it.
func (s *served) advance(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.Store(max(index, s.index.Load()))
	for len(s.waiting) > 0 && s.waiting[0].index <= s.index.Load() {
		close(heap.Pop(&s.waiting).(*indexWaiter).reached) //nolint:errcheck // it has nothing else
	}
}

// await waits until picks use an index. It returns false if ctx or s ends before.
func (s *served) await(ctx context.Context, index uint64) bool {
	if s.index.Load() >= index {
		return true
	}
	w := &indexWaiter{index: index, reached: make(chan struct{})}
	s.mu.Lock()
	if s.index.Load() >= index {
		s.mu.Unlock()
		return true
	}
	heap.Push(&s.waiting, w)
	s.mu.Unlock()
	select {
	case <-w.reached:
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.at >= 0 {
		heap.Remove(&s.waiting, w.at)
	}
	return w.index <= s.index.Load()
}

// close ends all waits.
func (s *served) close() {
	s.end()
	s.ending.Wait()
}

// indexWaiter waits for an index. A commit wakes only those that it is enough for.
type indexWaiter struct {
	index   uint64
	at      int // in the heap; -1 if it is not there
	reached chan struct{}
}

// indexWaiters is a heap, the smallest index first.
type indexWaiters []*indexWaiter

func (h indexWaiters) Len() int           { return len(h) }
func (h indexWaiters) Less(i, j int) bool { return h[i].index < h[j].index }

func (h indexWaiters) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *indexWaiters) Push(x any) {
	w := x.(*indexWaiter) //nolint:errcheck // it has nothing else
	w.at = len(*h)
	*h = append(*h, w)
}

func (h *indexWaiters) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	w.at = -1
	(*h)[last] = nil
	*h = (*h)[:last]
	return w
}

// now returns the index. It costs an atomic load.
func (s *served) now() uint64 { return s.index.Load() }
