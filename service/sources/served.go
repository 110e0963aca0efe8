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

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/wake"
)

// served is the index of the last commit that picks use. A commit becomes that when the trees
// of all targets that it changed have their configs. A tree that takes longer than treeTimeout
// keeps no commit back; a target that waits for a resource does until it uses the commit, for holdTimeout at most.
type served struct {
	index atomic.Uint64

	mu       sync.Mutex
	holds    map[held]*hold
	ended    []*hold             // whose targets have a config with the resource; their trees are waited for
	trees    uint64              // index of the last commit that the trees have, but for holds
	latest   uint64              // index of the last commit that was published
	changed  map[string]struct{} // targets with new configs since index
	settling map[string]struct{} // of these, the ones whose trees are waited for
	waiting  indexWaiters

	wake   wake.One // latest has grown
	ctx    context.Context
	end    context.CancelFunc
	ending sync.WaitGroup
}

// held is a resource that a target does not use yet as it is.
type held struct {
	target string
	key    resource.Key
}

// hold is the commit of such a resource.
type hold struct {
	index uint64
	until time.Time // then it keeps nothing back any more
}

// holdTimeout is the time after which a target that waits does not keep a commit back any more: one for which a caller
// names an unknown resource after the other would keep back those of everybody. It is longer than management servers
// have for a resource (gRFC A53).
const holdTimeout = 20 * time.Second

// hold records which of some updates targets do not use yet: it keeps back their commits, and later ones. now is
// what is stored. It returns the keys of these updates.
func (s *served) hold(waiting map[string][]resource.Key, now *store.Snapshot, updates []resource.Update) (keys []resource.Key) {
	if len(waiting) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	indices := make(map[resource.Key]uint64, len(updates))
	for i := range updates {
		key := updates[i].Key
		e, exists := now.Get(key)
		if indices[key] = e.Index; !exists { // its removal is in one of the commits since the last
			indices[key] = max(s.latest, s.trees) + 1
		}
	}
	for target, waits := range waiting {
		for _, key := range waits {
			index, changed := indices[key]
			if !changed {
				continue
			}
			is := held{target, key}
			if h := s.holds[is]; h == nil || !time.Now().Before(h.until) {
				s.holds[is] = &hold{index, time.Now().Add(holdTimeout)}
			}
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	time.AfterFunc(holdTimeout, func() { s.advance(0, nil) })
	return keys
}

// updated records that targets have new configs, also those of a management server: a later commit may need no other
// ones. It ends the holds of what targets do not wait for any more.
func (s *served) updated(changes []resolver.TargetConfig, waiting map[string][]resource.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		s.changed[c.Target] = struct{}{}
	}
	waits := make(map[held]bool)
	for target, keys := range waiting {
		for _, key := range keys {
			waits[held{target, key}] = true
		}
	}
	for is, h := range s.holds {
		if !waits[is] {
			delete(s.holds, is)
			s.ended = append(s.ended, h)
			s.changed[is.target] = struct{}{}
		}
	}
	if len(s.changed) > 0 {
		s.wake.Wake()
	}
}

// notInForce returns a warning about a resource that was changed or removed by hand, and that a target does not use as
// it is now.
func notInForce(key resource.Key) fault.Problem {
	return fault.Problem{Resource: key.String(), Reason: "the change is not in force yet: " +
		"picks go on with what was there before, until all that it leads to is known; a management server has 15 s for each resource"}
}

// treeTimeout is the time in which trees must have a config, or the index does not wait for them.
const treeTimeout = time.Second

func newServed() *served {
	s := &served{holds: map[held]*hold{}, changed: map[string]struct{}{}, settling: map[string]struct{}{}, wake: wake.NewOne()}
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
	return max(s.latest, s.trees)
}

// start begins with an index that picks use, and follows what was published since. settle
// returns when the picks of targets use their newest configs.
func (s *served) start(index uint64, settle func(context.Context, []string) error) {
	s.advance(index, nil)
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
	latest, ended := s.latest, slices.Clone(s.ended)
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
	s.advance(latest, ended)
}

// check sets the index to that of the last commit if all trees have their configs already.
func (s *served) check(settled func(iter.Seq[string]) bool) {
	s.mu.Lock()
	latest, ended := s.latest, slices.Clone(s.ended)
	is := settled(maps.Keys(s.changed)) && settled(maps.Keys(s.settling))
	s.mu.Unlock()
	if is {
		s.advance(latest, ended)
	}
}

// advance sets the index of the trees, removes holds whose trees have their configs, and ends the waits for what
// picks use now.
func (s *served) advance(index uint64, ended []*hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trees = max(index, s.trees)
	index = s.trees
	s.ended = slices.DeleteFunc(s.ended, func(h *hold) bool { return slices.Contains(ended, h) })
	for _, h := range slices.AppendSeq(slices.Clone(s.ended), maps.Values(s.holds)) {
		if time.Now().Before(h.until) {
			index = min(index, h.index-1)
		}
	}
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
