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
	// ConnectTimeout is how long a dialed address has to connect (gRPC's min connect
	// timeout). Addresses of one endpoint are dialed [policy.AttemptDelay] apart, so
	// an attempt to connect to an endpoint whose n addresses do not answer takes
	// ConnectTimeout and n-1 such delays, plus the wait for a slot.
	ConnectTimeout = 20 * time.Second
	// BusyTimeout is ConnectTimeout while many dials are under way: enough for one
	// lost SYN.
	BusyTimeout = 2 * time.Second
	// RechecksPerSecond limits the checks of connect mode tcp in the whole process.
	// With more endpoints than that allows, the interval grows.
	RechecksPerSecond = 10_000
	// rechecksPace is the interval at which rechecks wait for RechecksPerSecond.
	rechecksPace = 5 * time.Millisecond
	// shortagePace is the mean pause before the next dial after one that failed
	// because of a shortage in lbd.
	shortagePace = 100 * time.Millisecond
)

// dialGroup identifies the dials that take turns as one.
type dialGroup struct {
	channel *Channel // that dials; nil for a link without a tree
	cluster string
	// batch is the channel's batch in which the SubConn was made. The SubConns of one
	// priority are made together, apart from those of the priority before.
	batch uint64
}

// ofCluster is the group without its batch: each has its share of the slots.
func (g dialGroup) ofCluster() dialGroup { return dialGroup{channel: g.channel, cluster: g.cluster} }

// slots gives the slots to the dials that wait, in turn; see [Dialer] for what that
// guarantees.
type slots struct {
	wg sync.WaitGroup

	most    int // of dials under way; fixed
	patient int // how many dials under way leave a new one all of its time; fixed

	mu       sync.Mutex // guards the rest
	attempts queue
	rechecks queue
	pacing   bool // a look at the rechecks is to come
	closed   bool
	// allowed is how many dials may be under way: most, or fewer after a shortage.
	// resting: none may begin. easing: a timer will end resting, or raise allowed.
	allowed         int
	resting, easing bool
}

// dial waits for a slot, or has one.
type dial struct {
	// run dials, for limit at most. It reports whether a shortage in lbd prevented
	// that, so that it must run again.
	run func(limit time.Duration) (short bool)
	// over reports whether the dial was canceled.
	over func() bool
	// recheck replaces both.
	recheck *recheck

	group dialGroup // fixed once it waits
	from  *queue    // fixed once it has a slot
	queue *clusterQueue
}

func (d *dial) canceled() bool {
	if d.recheck != nil {
		return d.recheck.over.Load()
	}
	return d.over()
}

// newSlots returns slots for most dials at a time, from 1 to MaxDials.
func newSlots(most int) *slots {
	return &slots{
		most: most, patient: max(1, most/8), allowed: most,
		attempts: newQueue(most, nil),
		rechecks: newQueue(most, rate.NewLimiter(RechecksPerSecond, RechecksPerSecond/10)),
	}
}

// add queues d for a kind of dials. If begun, another address of its endpoint was dialed
// before: it is dialed before endpoints of its batch that were not.
func (s *slots) add(q *queue, g dialGroup, d dial, begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	q.add(g, d, begun)
	s.fill()
}

// addRechecks queues checks that are due.
func (s *slots) addRechecks(rs []*recheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	for _, r := range rs {
		s.rechecks.add(r.group(s.rechecks.free), dial{recheck: r}, false)
	}
	s.fill()
}

// hold runs f in a goroutine, unless the slots are closed.
func (s *slots) hold(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

// close drops the dials that wait. Wait for wg afterwards.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// fill gives away the free slots.
func (s *slots) fill() {
	for {
		d, limit, ok := s.nextAttempt()
		if !ok {
			return
		}
		s.wg.Go(func() { s.work(d, limit) })
	}
}

// work runs d, and then the next attempts in turn.
func (s *slots) work(d dial, limit time.Duration) {
	for ok := true; ok; {
		short := d.run(limit)
		s.mu.Lock()
		s.release(d, short)
		d, limit, ok = s.nextAttempt()
		s.mu.Unlock()
	}
}

// finishRecheck frees the slot of a check.
func (s *slots) finishRecheck(r *recheck, short bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := dial{recheck: r, from: &s.rechecks, queue: r.queue}
	if short {
		d.group = r.group(s.rechecks.free)
	}
	s.release(d, short)
	s.fill()
}

// release frees the slot of d. If short, d is the next of its batch.
func (s *slots) release(d dial, short bool) {
	if short {
		d.from.putBack(d)
		s.allowed, s.resting = 1, true // dials stop for a while, and are then allowed one at a time
		s.ease()
	}
	d.from.release(d.queue)
}

// nextAttempt takes the next attempt in turn, and begins the checks whose turn is
// before it.
func (s *slots) nextAttempt() (d dial, limit time.Duration, ok bool) {
	for {
		d, limit, ok = s.next()
		if !ok || d.recheck == nil {
			return d, limit, ok
		}
		d.recheck.queue = d.queue
		d.recheck.begin(limit)
	}
}

// next takes the next dial in turn, if a slot is free, of the kind that has fewer
// under way.
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

// ease ends resting, or doubles the number of allowed dials, after a pause.
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

// resume continues with rechecks that waited for their rate.
func (s *slots) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pacing = false
	s.fill()
}

// queue holds the waiting dials of one kind.
type queue struct {
	pace *rate.Limiter // nil for no bound; fixed
	// most limits the dials under way, so that one kind does not block the other, and
	// mostOfCluster those of one cluster; fixed.
	most, mostOfCluster int

	busy     int
	clusters map[dialGroup]*clusterQueue // that have something waiting or under way
	ring     []*clusterQueue             // of them, those that may have a slot
	paced    bool                        // the last take ended because of pace
}

// clusterQueue holds the waiting dials of one cluster of one channel.
type clusterQueue struct {
	group   dialGroup
	busy    int
	listed  bool // in the ring
	batches map[uint64]*batch
	ring    []*batch // all of them
}

// batch holds the waiting dials of SubConns that were made together.
type batch struct {
	number       uint64
	begun, fresh []dial
}

func newQueue(slots int, pace *rate.Limiter) queue {
	return queue{pace: pace, most: max(1, slots*3/4), mostOfCluster: max(1, slots/2), clusters: make(map[dialGroup]*clusterQueue)}
}

func (q *queue) add(g dialGroup, d dial, begun bool) {
	d.group = g
	c, b := q.place(g)
	if begun {
		b.begun = append(b.begun, d)
	} else {
		b.fresh = append(b.fresh, d)
	}
	q.list(c)
}

// putBack makes d the next of its batch.
func (q *queue) putBack(d dial) {
	c, b := q.place(d.group)
	b.begun = slices.Insert(b.begun, 0, d)
	q.list(c)
}

// place returns the cluster's queue and the batch of a group.
func (q *queue) place(g dialGroup) (*clusterQueue, *batch) {
	c := q.clusters[g.ofCluster()]
	if c == nil {
		c = &clusterQueue{group: g.ofCluster(), batches: make(map[uint64]*batch)}
		q.clusters[c.group] = c
	}
	b := c.batches[g.batch]
	if b == nil {
		b = &batch{number: g.batch}
		c.batches[g.batch] = b
		c.ring = append(c.ring, b)
	}
	return c, b
}

// free reports whether a dial of a group would not wait for others of its cluster.
func (q *queue) free(g dialGroup) bool {
	c := q.clusters[g.ofCluster()]
	return c == nil || len(c.ring) == 0 && c.busy < q.mostOfCluster
}

// list appends a queue that may have a slot to the ring, and deletes one that has no
// dials.
func (q *queue) list(c *clusterQueue) {
	switch {
	case c.listed:
	case len(c.ring) > 0 && c.busy < q.mostOfCluster:
		c.listed = true
		q.ring = append(q.ring, c)
	case len(c.ring) == 0 && c.busy == 0:
		delete(q.clusters, c.group)
	}
}

// take gives a slot to the next cluster in turn.
func (q *queue) take() (dial, bool) {
	q.paced = false
	for q.busy < q.most && len(q.ring) > 0 {
		c := q.ring[0]
		wanted := c.wants()
		if wanted && q.pace != nil && !q.pace.Allow() {
			q.paced = true
			break
		}
		pop(&q.ring)
		c.listed = false
		if !wanted {
			q.list(c)
			continue
		}
		d := c.take()
		d.from, d.queue = q, c
		q.busy++
		c.busy++
		q.list(c)
		return d, true
	}
	return dial{}, false
}

func (q *queue) release(c *clusterQueue) {
	q.busy--
	c.busy--
	q.list(c)
}

// wants drops canceled dials, and reports whether the batch whose turn it is has any
// left.
func (c *clusterQueue) wants() bool {
	for len(c.ring) > 0 {
		b := c.ring[0]
		b.begun, b.fresh = wanted(b.begun), wanted(b.fresh)
		if len(b.begun)+len(b.fresh) > 0 {
			return true
		}
		delete(c.batches, pop(&c.ring).number)
	}
	return false
}

// wanted returns ds from the first that is not canceled.
func wanted(ds []dial) []dial {
	for len(ds) > 0 && ds[0].canceled() {
		pop(&ds)
	}
	return ds
}

// take takes a dial of the batch whose turn it is, which must have one.
func (c *clusterQueue) take() dial {
	b := pop(&c.ring)
	from := &b.fresh
	if len(b.begun) > 0 {
		from = &b.begun
	}
	d := pop(from)
	if len(b.begun)+len(b.fresh) > 0 {
		c.ring = append(c.ring, b)
	} else {
		delete(c.batches, b.number)
	}
	return d
}

// pop removes and returns the first element.
func pop[T any](list *[]T) T {
	first := (*list)[0]
	clear((*list)[:1]) // for the garbage collector
	*list = (*list)[1:]
	return first
}
