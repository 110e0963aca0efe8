package lb

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/probe"
	"github.com/lbd-dev/lbd/overload"
)

const (
	// RecheckInterval is how often connect mode tcp checks that a READY endpoint
	// still accepts connections, plus or minus a tenth: for a minute after it has
	// connected, or after another endpoint of one of its clusters or of its host was
	// lost. Later the interval doubles, twice.
	RecheckInterval = 2 * time.Second
	// MaxRecheckInterval is the interval after 5 minutes without such a change.
	MaxRecheckInterval = 8 * time.Second
	// RecheckTimeout limits one such check.
	RecheckTimeout = 3 * time.Second
	// ReportedInterval is the minimum time between two checks of an address that reports of
	// callers cause.
	ReportedInterval = 250 * time.Millisecond

	// recheckTick is the resolution of the schedule.
	recheckTick = 50 * time.Millisecond
	// recheckTicks is the number of ticks of the schedule: it must exceed every
	// interval.
	recheckTicks = 256
)

// recheckInterval returns the interval of an endpoint without a change for a time.
func recheckInterval(stable time.Duration) time.Duration {
	switch {
	case stable < time.Minute:
		return RecheckInterval
	case stable < 5*time.Minute:
		return 2 * RecheckInterval
	default:
		return MaxRecheckInterval
	}
}

// recheckPause returns a random pause, up to a tenth shorter or longer than d, so that
// endpoints that connected together are not checked together.
func recheckPause(d time.Duration) time.Duration {
	return d*9/10 + time.Duration(rand.Float64()*float64(d/5-recheckTick)) // rounded up to a tick
}

// prober probes addresses, and watches connections, without TLS; [probe.Poller] is one.
type prober interface {
	Probe(address netip.AddrPort, limit time.Duration, t probe.Target)
	Hold(conn *net.TCPConn, h probe.Holder) (number int32, ok bool)
	Release(number int32, h probe.Holder)
	Close()
}

// rechecks has the checks of connect mode tcp: when they are due, and for which links.
// Links without TLS that have the same address share one. A link of another mode joins
// after a report that the address cannot be connected to, for one check.
type rechecks struct {
	dialer   *Dialer
	epoch    time.Time
	reported atomic.Uint64 // checks that reports have caused

	mu  sync.Mutex // guards the rest, and fields of links; slots.mu may be held, and is not acquired
	all map[recheckKey]*recheck
	// ring has the checks to come, by the tick in which they are due.
	ring    [recheckTicks]*recheck
	waiting int   // in the ring
	current int64 // the last tick whose checks have begun
	timer   *time.Timer
	armed   int64 // the tick of the timer; 0 for none
	closed  bool
	// lostClusters and lostHosts have lost an endpoint since the last tick.
	lostClusters map[dialGroup]struct{}
	lostHosts    map[string]struct{}
}

// recheckKey identifies a check: the link is nil for those that are shared.
type recheckKey struct {
	address string
	link    *tcpLink
}

// recheck is the check of one address: it waits in the ring, then for a slot, and is
// then under way.
type recheck struct {
	rechecks *rechecks // fixed
	key      recheckKey

	over atomic.Bool // no link is left

	// Guarded by rechecks.mu. There are many: what is small shares words.
	reported   uint32   // the tick of the last check that a report caused
	links      *tcpLink // the first of a list
	next, prev *recheck // in the ring
	due        int64    // the tick; 0 if not in the ring
	changed    int64    // the tick of the last change
	round      uint32   // counts the checks that have begun
	underWay   bool
	once       bool // reported while under way: once more

	queue *clusterQueue // that gave the slot; guarded by slots.mu
}

// now returns the current tick, which is never 0.
func (rs *rechecks) now() int64 { return int64(time.Since(rs.epoch)/recheckTick) + 1 }

// join has the address of a link checked until the link leaves or the endpoint is lost.
func (rs *rechecks) join(l *tcpLink, address string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.add(l, address) {
		rs.change(l.recheck)
	}
}

// add adds a link to the check of its address, unless it must not take part.
func (rs *rechecks) add(l *tcpLink, address string) bool {
	if rs.closed || l.left {
		return false
	}
	key := recheckKey{address: address}
	if l.secured() {
		key.link = l
	}
	r := rs.all[key]
	if r == nil {
		r = &recheck{rechecks: rs, key: key}
		rs.all[key] = r
		rs.place(r, RecheckInterval)
	}
	r.reported = max(r.reported, l.checked)
	l.recheck, l.round, l.after = r, r.round, r.links
	if r.links != nil {
		r.links.before = l
	}
	r.links = l
	return true
}

// soon checks the address of a connected link in the next tick, but not more often than
// once in ReportedInterval. A check that has not begun yet is enough.
func (rs *rechecks) soon(l *tcpLink, address string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if l.recheck == nil && (!l.hold || !rs.add(l, address)) {
		return
	}
	switch r := l.recheck; {
	case r.underWay && !r.once:
		r.once = true
		rs.reported.Add(1)
	case !r.underWay && r.due > rs.earliest(r):
		rs.unplace(r)
		rs.placeReported(r)
		rs.reported.Add(1)
	}
}

// earliest returns the tick in which a report can cause a check.
func (rs *rechecks) earliest(r *recheck) int64 {
	return max(rs.now()+1, int64(r.reported)+int64(ReportedInterval/recheckTick))
}

// placeReported adds a check to the ring that a report causes.
func (rs *rechecks) placeReported(r *recheck) {
	at := rs.earliest(r)
	r.reported = uint32(at)
	rs.placeAt(r, at)
}

// leave ends the checks for a link, also if it has not joined yet.
func (rs *rechecks) leave(l *tcpLink) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	l.left = true
	if l.recheck != nil {
		rs.remove(l)
	}
}

// remove removes a link from its check, and the check with its last link.
func (rs *rechecks) remove(l *tcpLink) {
	r := l.recheck
	if l.before != nil {
		l.before.after = l.after
	} else {
		r.links = l.after
	}
	if l.after != nil {
		l.after.before = l.before
	}
	l.recheck, l.before, l.after, l.checked = nil, nil, nil, r.reported
	if r.links == nil {
		r.over.Store(true)
		delete(rs.all, r.key)
		rs.unplace(r)
	}
}

// change sets a check back to the shortest interval.
func (rs *rechecks) change(r *recheck) {
	r.changed = rs.now()
	if r.due > r.changed+int64(RecheckInterval*11/10/recheckTick) {
		rs.unplace(r)
		rs.place(r, RecheckInterval)
	}
}

// place adds a check to the ring.
func (rs *rechecks) place(r *recheck, interval time.Duration) {
	rs.placeAt(r, int64((time.Since(rs.epoch)+recheckPause(interval)+recheckTick-1)/recheckTick)+1)
}

// placeAt adds a check to the ring, to begin in a tick.
func (rs *rechecks) placeAt(r *recheck, tick int64) {
	if rs.closed {
		return
	}
	if rs.waiting == 0 { // the schedule stopped
		rs.current = max(rs.current, rs.now())
	}
	r.due = max(rs.current+1, tick)
	first := &rs.ring[r.due%recheckTicks]
	r.next, r.prev = *first, nil
	if r.next != nil {
		r.next.prev = r
	}
	*first = r
	rs.waiting++
	rs.arm(r.due)
}

// unplace removes a check from the ring if it is there.
func (rs *rechecks) unplace(r *recheck) {
	if r.due == 0 {
		return
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		rs.ring[r.due%recheckTicks] = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.next, r.prev, r.due = nil, nil, 0
	rs.waiting--
}

// arm has tick called at a tick, or earlier.
func (rs *rechecks) arm(at int64) {
	if rs.armed != 0 && rs.armed <= at {
		return
	}
	rs.armed = at
	d := time.Until(rs.epoch.Add(time.Duration(at-1) * recheckTick))
	if rs.timer == nil {
		rs.timer = time.AfterFunc(d, rs.tick)
	} else {
		rs.timer.Reset(d)
	}
}

// tick queues the checks that are due.
func (rs *rechecks) tick() {
	rs.mu.Lock()
	if rs.closed {
		rs.mu.Unlock()
		return
	}
	rs.armed = 0
	now := rs.now()
	rs.hurry()
	due := make([]*recheck, 0, 64)
	for rs.current = max(rs.current, now-recheckTicks); rs.current < now; {
		rs.current++
		for r := rs.ring[rs.current%recheckTicks]; r != nil; r = rs.ring[rs.current%recheckTicks] {
			rs.unplace(r)
			due = append(due, r)
		}
	}
	for at := rs.current + 1; rs.waiting > 0 && at <= rs.current+recheckTicks; at++ {
		if rs.ring[at%recheckTicks] != nil {
			rs.arm(at)
			break
		}
	}
	rs.mu.Unlock()
	rs.dialer.slots.addRechecks(due)
}

// hurry sets checks back to the shortest interval whose cluster or host has lost an
// endpoint: others of it may be lost too.
func (rs *rechecks) hurry() {
	if len(rs.lostClusters) == 0 {
		return
	}
	now := rs.now()
	for _, r := range rs.all {
		if recheckInterval(time.Duration(now-r.changed)*recheckTick) > RecheckInterval && rs.suspect(r) {
			rs.change(r)
		}
	}
	clear(rs.lostClusters)
	clear(rs.lostHosts)
}

// suspect reports whether the host of a check, or a cluster of its links, has lost an
// endpoint.
func (rs *rechecks) suspect(r *recheck) bool {
	if _, lost := rs.lostHosts[hostOf(r.key.address)]; lost {
		return true
	}
	for l := r.links; l != nil; l = l.after {
		if _, lost := rs.lostClusters[l.group.ofCluster()]; lost {
			return true
		}
	}
	return false
}

func hostOf(address string) string { return address[:max(0, strings.LastIndexByte(address, ':'))] }

// again schedules the next check after one that did not fail. Links that joined for that
// one leave.
func (rs *rechecks) again(r *recheck) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for l := r.links; l != nil && !r.once; {
		next := l.after
		if l.hold {
			rs.remove(l)
		}
		l = next
	}
	rs.next(r, recheckInterval(time.Duration(rs.now()-r.changed)*recheckTick))
}

// next schedules the check after one that has ended.
func (rs *rechecks) next(r *recheck, interval time.Duration) {
	once := r.once
	r.underWay, r.once = false, false
	switch {
	case r.links == nil:
	case once:
		rs.placeReported(r)
	default:
		rs.place(r, interval)
	}
}

// lose removes and returns the links of a check that has failed. Those that joined
// after it began stay: their endpoint has connected since.
func (rs *rechecks) lose(r *recheck) (lost []*tcpLink) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for l := r.links; l != nil; {
		next := l.after
		if l.round != r.round {
			rs.lostClusters[l.group.ofCluster()] = struct{}{}
			lost = append(lost, l)
			rs.remove(l)
		}
		l = next
	}
	if len(lost) > 0 && !rs.closed {
		rs.lostHosts[hostOf(r.key.address)] = struct{}{}
		rs.arm(rs.now() + 1)
	}
	rs.next(r, RecheckInterval)
	return lost
}

func (rs *rechecks) close() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.closed = true
	if rs.timer != nil {
		rs.timer.Stop()
	}
}

// group returns the group of the first link whose turn comes at once; of the first link
// if there is none.
func (r *recheck) group(free func(dialGroup) bool) (g dialGroup) {
	r.rechecks.mu.Lock()
	defer r.rechecks.mu.Unlock()
	if r.links == nil {
		return dialGroup{}
	}
	const most = 8 // links to look at
	for l, n := r.links, 0; l != nil && n < most; l, n = l.after, n+1 {
		if free(l.group) {
			return l.group
		}
	}
	return r.links.group
}

// begin checks the address, for limit at most, and calls done. The caller holds
// slots.mu.
func (r *recheck) begin(limit time.Duration) {
	limit = min(limit, RecheckTimeout)
	r.rechecks.mu.Lock()
	r.round++
	r.underWay = true
	link := r.links
	r.rechecks.mu.Unlock()
	d := r.rechecks.dialer
	if r.key.link == nil {
		if a, err := netip.ParseAddrPort(r.key.address); err == nil && a.Addr().Zone() == "" && !a.Addr().IsUnspecified() {
			if p := d.prober(); p != nil {
				p.Probe(a, limit, r)
				return
			}
		}
	}
	d.slots.wg.Go(func() {
		if link == nil {
			r.done(nil)
			return
		}
		conn, err := link.dial(d.ctx, r.key.address, limit, func() {})
		if err == nil {
			_ = conn.Close()
		}
		r.done(err)
	})
}

// Probed is called by the prober.
func (r *recheck) Probed(err error) {
	d := r.rechecks.dialer
	if err == nil {
		d.pauses.connected(r.key.address, proof{})
	}
	r.done(d.classify(d.ctx, err, r.key.address))
}

// done ends a check with its result.
func (r *recheck) done(err error) {
	d := r.rechecks.dialer
	short := false
	lacking, isShortage := errors.AsType[*shortage](err)
	var lost []*tcpLink
	switch {
	case d.ctx.Err() != nil: // the Dialer is closed
	case isShortage && d.report(lacking):
		short = true
	case err == nil || isShortage:
		r.rechecks.again(r)
	default:
		lost = r.rechecks.lose(r)
	}
	d.slots.finishRecheck(r, short)
	for _, l := range lost {
		l.fail(err)
	}
}

// classify returns a *shortage if a shortage of lbd is the cause of an error.
func (d *Dialer) classify(ctx context.Context, err error, address string) error {
	if r, ok := overload.OfDial(ctx, err, address, d.connect); ok {
		return &shortage{resource: r, err: err}
	}
	return err
}
