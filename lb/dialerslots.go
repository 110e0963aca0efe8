package lb

import (
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/lbd-dev/lbd/overload"
)

const (
	// MaxDials limits the dials of the process that are under way.
	MaxDials = 256
	// ConnectTimeout is how long an address has to connect once it is dialed (gRPC's
	// min connect timeout). Addresses of one endpoint are dialed [policy.AttemptDelay]
	// apart, so an attempt to connect to an endpoint whose n addresses do not answer
	// takes ConnectTimeout and n-1 such delays, plus the wait for a slot.
	ConnectTimeout = 20 * time.Second
	// BusyTimeout is ConnectTimeout while many dials are under way: enough for one
	// lost SYN.
	BusyTimeout = 2 * time.Second
	// RechecksPerSecond limits the checks of connect mode tcp in the whole process.
	// With more endpoints than that allows, the interval grows.
	RechecksPerSecond = 2000
	// rechecksPace is how often rechecks that wait for RechecksPerSecond are
	// looked at.
	rechecksPace = 5 * time.Millisecond
	// shortagePace is the mean pause after a dial that failed for a shortage of lbd's
	// own, until the next is tried.
	shortagePace = 100 * time.Millisecond
)

// turn identifies the dials that share a turn.
type turn struct {
	// timers are those of the channel that dials, which turns also identify it by.
	// A link without a tree has none.
	timers  connectTimers
	cluster string
	// batch is the channel's batch in which the SubConn was made. The SubConns of one
	// priority are made together, apart from those of the priority before.
	batch uint64
}

// connectTimers are a channel's timers of children that are CONNECTING.
type connectTimers interface {
	// suspend stops the timers of a root cluster until resume is called as often.
	suspend(root string)
	resume(root string)
}

// line is the part of the turn that has its share of the slots.
func (t turn) line() turn { return turn{timers: t.timers, cluster: t.cluster} }

// slots gives the MaxDials slots to the dials that wait, each a turn: see
// [Dialer] for what that guarantees.
type slots struct {
	wg sync.WaitGroup

	most    int // of dials under way; fixed
	patient int // how many dials under way leave a new one all of its time; fixed

	mu       sync.Mutex // guards the rest
	attempts queue
	rechecks queue
	pacing   bool // a look at the rechecks is to come
	closed   bool
	// allowed is how many dials may be under way: most, and less after one has failed
	// for a shortage of lbd's own. resting: none may begin. easing: a timer will end
	// resting, or raise allowed.
	allowed         int
	resting, easing bool
}

// dial is one that waits for a slot, or has one.
type dial struct {
	// run dials, for limit at most. It reports whether that failed for a shortage of
	// lbd's own, so that it has to be run again.
	run func(limit time.Duration) (short bool)
	// over reports that the dial is not wanted any more.
	over func() bool

	turn turn   // fixed once it waits
	from *queue // fixed once it has a slot
	line *line
}

// newSlots returns slots for most dials at a time, at least 1 and MaxDials at most.
func newSlots(most int) *slots {
	return &slots{
		most: most, patient: max(1, most/8), allowed: most,
		attempts: newQueue(most, nil),
		rechecks: newQueue(most, rate.NewLimiter(RechecksPerSecond, RechecksPerSecond/10)),
	}
}

// attempt lets d run once it is its turn. One that is begun, of an endpoint that
// was dialed at another address, goes before those of its batch that are not.
func (s *slots) attempt(t turn, d dial, begun bool) { s.add(&s.attempts, t, d, begun) }

// recheck lets d run once it is its turn.
func (s *slots) recheck(t turn, d dial) { s.add(&s.rechecks, t, d, false) }

func (s *slots) add(q *queue, t turn, d dial, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	q.add(t, d, begun)
	s.fill()
}

// hold lets f run in a goroutine of its own, unless the slots are closed.
func (s *slots) hold(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

// close drops what waits. Wait for wg thereafter.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// fill gives away the slots that are free.
func (s *slots) fill() {
	for {
		d, limit, ok := s.next()
		if !ok {
			return
		}
		s.wg.Go(func() { s.work(d, limit) })
	}
}

// work runs d, and then whatever has the next turn. One slot that is given back
// makes room for one.
func (s *slots) work(d dial, limit time.Duration) {
	for ok := true; ok; {
		short := d.run(limit)
		s.mu.Lock()
		if short {
			d.from.putBack(d)
			s.rest()
		}
		d.from.release(d.line)
		d, limit, ok = s.next()
		s.mu.Unlock()
	}
}

// next takes the dial that has the next turn, if a slot is free: of the kind of
// which fewer are under way.
func (s *slots) next() (d dial, limit time.Duration, ok bool) {
	if s.closed || s.resting || s.attempts.busy+s.rechecks.busy >= s.allowed {
		return dial{}, 0, false
	}
	kinds := [...]*queue{&s.attempts, &s.rechecks}
	if s.rechecks.busy < s.attempts.busy {
		kinds[0], kinds[1] = kinds[1], kinds[0]
	}
	for _, q := range kinds {
		d, ok = q.take()
		if ok {
			break
		}
	}
	if !s.pacing && s.rechecks.paced {
		s.pacing = true
		time.AfterFunc(rechecksPace, s.resume)
	}
	limit = ConnectTimeout
	if s.attempts.busy+s.rechecks.busy > s.patient {
		limit = BusyTimeout
	}
	return d, limit, ok
}

// rest lets no dial begin for a while, and then one at a time: what was lacking would
// be lacking again.
func (s *slots) rest() {
	s.allowed, s.resting = 1, true
	s.ease()
}

// ease ends resting, or doubles how many dials may be under way, after a pause.
func (s *slots) ease() {
	if s.easing || s.closed {
		return
	}
	s.easing = true
	time.AfterFunc(overload.Pause(shortagePace), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.easing = false
		if s.resting {
			s.resting = false
		} else {
			s.allowed = min(s.most, 2*s.allowed)
		}
		s.fill()
		if s.allowed < s.most {
			s.ease()
		}
	})
}

// resume goes on with rechecks that waited for their rate.
func (s *slots) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pacing = false
	s.fill()
}

// queue is what waits of one kind of dials, and how many of it are under way.
type queue struct {
	pace *rate.Limiter // nil for no bound; fixed
	// most is how many may be under way, so that neither kind keeps the other out, and
	// mostOfLine how many of them may be one line's; fixed.
	most, mostOfLine int

	busy  int
	lines map[turn]*line // that have something waiting or under way
	ring  []*line        // of them, those that may have a slot
	paced bool           // the last take ended because of pace
}

// line is what waits of one cluster of one channel.
type line struct {
	turn    turn
	busy    int
	listed  bool // in the ring
	batches map[uint64]*batch
	ring    []*batch // all of them
}

// batch is what waits of SubConns that were made together.
type batch struct {
	number       uint64
	begun, fresh []dial
}

// newQueue returns a queue that may have three quarters of slots, and each line half.
func newQueue(slots int, pace *rate.Limiter) queue {
	return queue{pace: pace, most: max(1, slots*3/4), mostOfLine: max(1, slots/2), lines: make(map[turn]*line)}
}

func (q *queue) add(t turn, d dial, begun bool) {
	d.turn = t
	l, b := q.place(t)
	if begun {
		b.begun = append(b.begun, d)
	} else {
		b.fresh = append(b.fresh, d)
	}
	q.list(l)
}

// putBack lets d be the next of its batch.
func (q *queue) putBack(d dial) {
	l, b := q.place(d.turn)
	b.begun = slices.Insert(b.begun, 0, d)
	q.list(l)
}

// place returns the line and the batch of a turn.
func (q *queue) place(t turn) (*line, *batch) {
	l := q.lines[t.line()]
	if l == nil {
		l = &line{turn: t.line(), batches: make(map[uint64]*batch)}
		q.lines[l.turn] = l
	}
	b := l.batches[t.batch]
	if b == nil {
		b = &batch{number: t.batch}
		l.batches[t.batch] = b
		l.ring = append(l.ring, b)
	}
	return l, b
}

// list puts a line that may have a slot behind the others, and forgets one that
// has and wants none.
func (q *queue) list(l *line) {
	switch {
	case l.listed:
	case len(l.ring) > 0 && l.busy < q.mostOfLine:
		l.listed = true
		q.ring = append(q.ring, l)
	case len(l.ring) == 0 && l.busy == 0:
		delete(q.lines, l.turn)
	}
}

// take gives a slot to the next line in turn.
func (q *queue) take() (dial, bool) {
	q.paced = false
	for q.busy < q.most && len(q.ring) > 0 {
		l := q.ring[0]
		wanted := l.wants()
		if wanted && q.pace != nil && !q.pace.Allow() {
			q.paced = true
			break
		}
		q.ring[0] = nil
		q.ring = q.ring[1:]
		l.listed = false
		if !wanted {
			q.list(l)
			continue
		}
		d := l.take()
		d.from, d.line = q, l
		q.busy++
		l.busy++
		q.list(l)
		return d, true
	}
	return dial{}, false
}

func (q *queue) release(l *line) {
	q.busy--
	l.busy--
	q.list(l)
}

// wants drops what is not wanted any more, and reports whether the batch whose
// turn it is has something left.
func (l *line) wants() bool {
	for len(l.ring) > 0 {
		b := l.ring[0]
		b.begun, b.fresh = wanted(b.begun), wanted(b.fresh)
		if len(b.begun)+len(b.fresh) > 0 {
			return true
		}
		l.drop()
	}
	return false
}

// wanted is ds from the first on that is wanted.
func wanted(ds []dial) []dial {
	for len(ds) > 0 && ds[0].over() {
		ds[0] = dial{}
		ds = ds[1:]
	}
	return ds
}

// take takes the first of the batch whose turn it is, which has one.
func (l *line) take() dial {
	b := l.ring[0]
	from := &b.fresh
	if len(b.begun) > 0 {
		from = &b.begun
	}
	d := (*from)[0]
	(*from)[0] = dial{}
	*from = (*from)[1:]
	if len(b.begun)+len(b.fresh) > 0 {
		l.ring = append(l.ring, b)
		l.ring[0] = nil
		l.ring = l.ring[1:]
	} else {
		l.drop()
	}
	return d
}

// drop forgets the batch whose turn it is.
func (l *line) drop() {
	delete(l.batches, l.ring[0].number)
	l.ring[0] = nil
	l.ring = l.ring[1:]
}
