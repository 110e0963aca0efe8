package overload

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Work is a kind of bulk work. The kinds get turns in rotation, so that none delays another
// for long.
type Work int

// The kinds of bulk work.
const (
	// SourceWork decodes resources of management servers and files.
	SourceWork Work = iota
	// PushWork decodes what callers push.
	PushWork
	// ResponseWork computes large responses.
	ResponseWork
	// TreeWork builds balancer trees in the background.
	TreeWork

	works
)

// Works are all kinds.
var Works = []Work{SourceWork, PushWork, ResponseWork, TreeWork}

// String returns the name of the kind in metrics.
func (w Work) String() string { return [works]string{"sources", "pushes", "responses", "trees"}[w] }

const (
	// SmallWork is the size in bytes of what needs no turn: decoding it takes less than a
	// millisecond, for which other work need not wait.
	SmallWork = 16 << 10
	// SmallClusters is the number of clusters, or of endpoints, whose description needs no turn.
	SmallClusters = 100
	// MaxDecoding limits how many pushed bodies above SmallWork are decoded at a time: each may
	// take many times its size in memory.
	MaxDecoding = 2

	// turnTime is how long work of one kind keeps a turn while work of another kind waits.
	turnTime = 10 * time.Millisecond
	// yieldTime is how long bulk work runs before goroutines that wait for a CPU run.
	yieldTime = 100 * time.Microsecond
	// minSteps is the budget of a turn in calls of Pause; work on bytes has one more for each of them. What costs in
	// proportion to its size needs far fewer. A budget in time would refuse today, under load, what it took yesterday.
	minSteps = 1 << 16
)

// Turns is the budget of bulk work: work that takes long, and must not delay picks. It has
// fewer turns than there are CPUs, so that one is left for picks. Its methods are safe for
// concurrent use. A nil Turns has no limit.
//
// Work that has begun lasts until it ends, its caller leaves or its budget is spent, but
// pauses for other kinds. Of each kind, only as much work begins as there are turns, because
// each takes memory. Callers of one kind begin in rotation.
//
// Deadlocks cannot happen if a goroutine with a turn never waits for another goroutine that
// waits for one. So wait for a turn without holding a lock or another turn.
type Turns struct {
	// Fixed after NewTurns.
	n        int
	maxBegun [works]int

	// Memory is what resources of sources reserve, and Monitor has the shortage of it. They are set before the first turn.
	Memory  *MemoryBudget
	Monitor *Monitor

	mu     sync.Mutex // guards the rest
	free   int        // turns
	begun  [works]int // including those that pause
	paused [works][]*Turn
	queues [works]turnQueue
	next   Work // the first kind to get the next turn
	stats  [works]TurnStats
}

// TurnStats are what a kind of bulk work uses of the budget.
type TurnStats struct {
	Running int           // that have a turn
	Waiting int           // for a turn, including work that pauses
	Begun   uint64        // all that ever got a turn
	Waited  time.Duration // by all that ever got a turn, since then including pauses
}

// NewTurns returns a budget of n turns; 0 is one less than [CPUs], at least 1.
func NewTurns(n int) *Turns {
	n = cmp.Or(n, max(1, cpus-1))
	return &Turns{n: n, free: n, maxBegun: [works]int{SourceWork: n, PushWork: min(n, MaxDecoding), ResponseWork: n, TreeWork: n}}
}

// Turn is the right to do bulk work. One goroutine at a time uses it. The methods of a nil
// Turn do nothing.
type Turn struct {
	// Fixed.
	turns  *Turns
	ctx    context.Context // of the caller
	work   Work
	caller string
	size   int           // of the work in bytes; 0 if it is not known
	ready  chan struct{} // gets a value with the turn

	steps   int
	since   time.Time // when the turn, or the wait for it, began
	yielded time.Time
}

// Begin waits for a turn, which [Turn.End] returns. Callers by name take turns to begin; the
// name is that of the caller of the API, of the management server or of the directory. The
// error is that of ctx, which ends the wait; [Turn.Pause] returns it once the work has begun.
func (b *Turns) Begin(ctx context.Context, work Work, caller string) (*Turn, error) {
	return b.begin(ctx, work, caller, 0)
}

func (b *Turns) begin(ctx context.Context, work Work, caller string, size int) (*Turn, error) {
	if b == nil {
		return nil, nil //nolint:nilnil // a nil Turn is valid
	}
	t := &Turn{turns: b, ctx: ctx, work: work, caller: caller, size: size, ready: make(chan struct{}, 1), since: time.Now()}
	b.mu.Lock()
	b.queues[work].add(t)
	b.stats[work].Waiting++
	b.grant()
	b.mu.Unlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
		if b.leave(t) {
			return nil, ctx.Err()
		}
		<-t.ready // it has the turn already
	}
	t.yielded = t.since
	return t, nil
}

// BeginSized is Begin for work on so many bytes. Small work needs no turn.
func (b *Turns) BeginSized(ctx context.Context, work Work, caller string, size int) (*Turn, error) {
	if size <= SmallWork {
		return nil, nil //nolint:nilnil // a nil Turn is valid
	}
	return b.begin(ctx, work, caller, size)
}

// ReserveSource reserves memory for resources that a source decodes together, factor times their size, until release. The
// error, a *[MemoryError], is reported as a shortage: the source keeps what it has, and tries again after [RetryPause].
func (b *Turns) ReserveSource(source string, size, factor int) (release func(), err error) {
	if b == nil || size <= SmallWork {
		return func() {}, nil
	}
	bytes := int64(factor) * int64(size)
	if err := b.Memory.ReserveSource(source, bytes); err != nil {
		err = fmt.Errorf("%s: %w", source, err)
		b.Monitor.Report(SourceMemory, err)
		return func() {}, err
	}
	return func() { b.Memory.Release(bytes) }, nil
}

// leave removes a turn that waits to begin. It reports false if the turn has begun.
func (b *Turns) leave(t *Turn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.queues[t.work].remove(t) {
		return false
	}
	b.stats[t.work].Waiting--
	return true
}

// grant gives the free turns to those that wait, kind by kind: first to what has begun. It is
// called under mu, like the functions that it calls.
func (b *Turns) grant() {
	for b.free > 0 {
		t := b.first()
		if t == nil {
			return
		}
		now := time.Now()
		b.free--
		stats := &b.stats[t.work]
		stats.Waiting--
		stats.Running++
		stats.Waited += now.Sub(t.since)
		t.since = now
		t.ready <- struct{}{}
	}
}

// first removes the one that gets the next turn from those that wait.
func (b *Turns) first() *Turn {
	for range works {
		work := b.next
		b.next = (b.next + 1) % works
		if p := b.paused[work]; len(p) > 0 {
			t := p[0]
			b.paused[work] = slices.Delete(p, 0, 1)
			return t
		}
		if b.begun[work] == b.maxBegun[work] {
			continue
		}
		if t := b.queues[work].first(); t != nil {
			b.begun[work]++
			b.stats[work].Begun++
			return t
		}
	}
	return nil
}

// End returns the turn.
func (t *Turn) End() {
	if t == nil {
		return
	}
	b := t.turns
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun[t.work]--
	b.release(t)
}

func (b *Turns) release(t *Turn) {
	b.stats[t.work].Running--
	b.free++
	b.grant()
}

// Pause lets others run: goroutines that wait for a CPU, and, if the turn has lasted for
// 10 ms, work of other kinds. Call it in long loops, about every 100 µs of work, and without
// holding a lock. An error ends the work: that of the caller's context, or a *[BudgetError].
func (t *Turn) Pause() error {
	if t == nil {
		return nil
	}
	if t.steps++; t.steps > minSteps+t.size {
		return &BudgetError{t.steps, t.size}
	}
	now := time.Now()
	if now.Sub(t.yielded) < yieldTime {
		return nil
	}
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if now.Sub(t.since) >= turnTime && t.turns.resign(t, now) {
		<-t.ready
		now = t.since
	} else {
		runtime.Gosched()
	}
	t.yielded = now
	return nil
}

// BudgetError is why work ends that costs more than its size permits.
type BudgetError struct{ steps, size int }

func (e *BudgetError) Error() string {
	return fmt.Sprintf("takes more work than its size permits: %d steps for %d bytes; divide it into smaller parts", e.steps, e.size)
}

// resign puts a turn behind those of other kinds that wait. It reports false if there are none.
func (b *Turns) resign(t *Turn, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.othersWait(t.work) {
		t.since = now
		return false
	}
	b.next = (t.work + 1) % works
	t.since = now
	b.paused[t.work] = append(b.paused[t.work], t)
	b.stats[t.work].Waiting++
	b.release(t)
	return true
}

// othersWait reports whether work of another kind could use a turn.
func (b *Turns) othersWait(than Work) bool {
	for work := range works {
		if work != than && (len(b.paused[work]) > 0 || b.begun[work] < b.maxBegun[work] && len(b.queues[work].callers) > 0) {
			return true
		}
	}
	return false
}

// Len returns the number of turns.
func (b *Turns) Len() int {
	if b == nil {
		return 0
	}
	return b.n
}

// Stats returns the use of the budget by a kind of work.
func (b *Turns) Stats(work Work) TurnStats {
	if b == nil {
		return TurnStats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stats[work]
}

// turnQueue has those that wait to begin, by caller. The callers take turns.
type turnQueue struct{ callers []*turnCaller }

type turnCaller struct {
	name    string
	waiting []*Turn
}

func (q *turnQueue) add(t *Turn) {
	i := slices.IndexFunc(q.callers, func(c *turnCaller) bool { return c.name == t.caller })
	if i < 0 {
		i = len(q.callers)
		q.callers = append(q.callers, &turnCaller{name: t.caller})
	}
	q.callers[i].waiting = append(q.callers[i].waiting, t)
}

// first removes the next one; nil if none waits.
func (q *turnQueue) first() *Turn {
	if len(q.callers) == 0 {
		return nil
	}
	c := q.callers[0]
	q.callers = slices.Delete(q.callers, 0, 1)
	t := c.waiting[0]
	if c.waiting = slices.Delete(c.waiting, 0, 1); len(c.waiting) > 0 {
		q.callers = append(q.callers, c)
	}
	return t
}

// remove removes one, and reports whether it was there.
func (q *turnQueue) remove(t *Turn) bool {
	for i, c := range q.callers {
		at := slices.Index(c.waiting, t)
		if c.name != t.caller || at < 0 {
			continue
		}
		if c.waiting = slices.Delete(c.waiting, at, at+1); len(c.waiting) == 0 {
			q.callers = slices.Delete(q.callers, i, i+1)
		}
		return true
	}
	return false
}
