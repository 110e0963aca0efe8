package share

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// The model is a fleet with its store, in steps of one unit of time. Everything that may happen in
// reality is a step of it: see [world.steps].
const (
	unit       = demandWindow
	sessionTTL = 2 * unit
	maxTTL     = 4 * unit
)

// mutation is a mistake that the caller of a Machine could make. The model must find it.
type mutation string

const (
	correct           mutation = "correct"
	growsFirst        mutation = "grows before publishing"
	shrinksLate       mutation = "shrinks after publishing"
	returnsAtOnce     mutation = "returns a dead share at once"
	deadlineFromReply mutation = "deadline counted from the reply"
	boundsLate        mutation = "bound published after granting"
	ignoresDeadline   mutation = "admits after the deadline"
	trustsUnknown     mutation = "takes an unknown result for a failure"
	keepsSession      mutation = "admits with a new session before it is published"
)

// stored is what the store has at a revision.
type stored struct {
	revision int64
	record   Record
	changed  int64 // revision of the last change of record
	exists   bool
	sessions []Session
}

// lease is a request of a client, which knows nothing of replicas.
type lease struct {
	process int
	expires time.Duration
}

// request is a message of a process to the store, with the answer if there is one.
type request struct {
	update   *Update // nil: to keep the session alive
	session  int64
	sent     time.Duration
	answered bool
	ok       bool
	is       stored // then
}

// process is one process of a replica.
type process struct {
	id       string
	dead     bool
	paused   bool
	machine  Machine
	out      Output // in effect
	late     bool   // shrinksLate: out.Share is not in effect yet
	refused  int64
	longest  time.Duration
	advanced bool  // Propose is due
	read     int64 // revision that its watch is at
	update   *request
	alive    *request
	strays   []Update // of requests whose results are unknown, that may arrive yet
}

type world struct {
	mutation  mutation
	now       time.Duration
	stored    stored
	past      []stored        // for slow watches
	expiries  []time.Duration // of stored.sessions
	processes []process
	leases    []lease
	limit     int64 // that new processes have
	ceiling   int64 // the sum may not exceed it
	begun     int64 // number of sessions
	trace     *link
}

// link is a step with those before it.
type link struct {
	before *link
	step   step
}

func (l *link) String() string {
	var names []string
	for ; l != nil; l = l.before {
		names = append(names, l.step.String())
	}
	slices.Reverse(names)
	return strings.Join(names, "\n")
}

func newWorld(m mutation, replicas int, limit int64) *world {
	w := &world{mutation: m, limit: limit, ceiling: limit, stored: stored{revision: 1}}
	w.past = []stored{w.stored}
	for range replicas {
		w.start()
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.past = slices.Clone(w.past)
	c.expiries = slices.Clone(w.expiries)
	c.processes = slices.Clone(w.processes)
	c.leases = slices.Clone(w.leases)
	for i := range c.processes {
		p := &c.processes[i]
		p.strays = slices.Clone(p.strays)
		for _, r := range []**request{&p.update, &p.alive} {
			if *r != nil {
				copied := **r
				*r = &copied
			}
		}
	}
	return &c
}

var names = [...]string{"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9"}

// start adds a process.
func (w *world) start() {
	id := names[len(w.processes)]
	p := process{id: id, machine: *New(Config{
		Replica: id, Fast: 0, Slow: 2 * unit, MinBound: unit, MaxBound: maxTTL,
	})}
	p.machine.SetLimit(w.limit)
	w.processes = append(w.processes, p)
}

// commit makes what the store has now a new revision.
func (w *world) commit(change func(s *stored)) {
	change(&w.stored)
	w.stored.revision++
	w.past = append(w.past, w.stored)
}

func (w *world) inFlight(i int) int64 {
	n := int64(0)
	for _, l := range w.leases {
		if l.process == i {
			n++
		}
	}
	return n
}

// step is something that can happen, to a process if it is not -1.
type step struct {
	process int
	name    string
	do      func(w *world, p *process)
}

func (s step) String() string {
	if s.process < 0 {
		return s.name
	}
	return fmt.Sprintf("p%d %s", s.process, s.name)
}

// make makes the step happen.
func (w *world) make(s step) {
	w.trace = &link{w.trace, s}
	p := (*process)(nil)
	if s.process >= 0 {
		p = &w.processes[s.process]
	}
	s.do(w, p)
}

// steps returns what can happen now.
func (w *world) steps() []step {
	all := make([]step, 0, 40)
	all = append(all, step{-1, "time passes", func(w *world, _ *process) { w.tick() }})
	add := func(i int, name string, do func(w *world, p *process)) { all = append(all, step{i, name, do}) }
	for i := range w.processes {
		p := &w.processes[i]
		w.ofStore(i, p, add)
		if p.dead {
			continue
		}
		if len(w.processes) < len(names) {
			add(i, "is killed", (*world).kill)
		}
		if p.paused {
			add(i, "continues", func(_ *world, p *process) { p.paused = false })
			continue
		}
		add(i, "pauses", func(_ *world, p *process) { p.paused = true })
		w.ofProcess(i, p, add)
	}
	for i, l := range w.leases {
		if (i == 0 || l != w.leases[i-1]) && !w.processes[l.process].paused && !w.processes[l.process].dead {
			add(l.process, "has a request that ends", func(w *world, _ *process) { w.leases = slices.Delete(w.leases, i, i+1) })
		}
	}
	for i, s := range w.stored.sessions {
		if w.now >= w.expiries[i] {
			at := slices.IndexFunc(w.processes, func(p process) bool { return p.id == s.Replica })
			add(at, "has a session that ends", func(w *world, _ *process) { w.expire(i) })
		}
	}
	return all
}

// ofStore adds what can happen to the messages of a process.
func (w *world) ofStore(i int, p *process, add func(int, string, func(*world, *process))) {
	if p.update != nil && !p.update.answered {
		add(i, "update arrives", func(w *world, p *process) { w.arrive(p.update) })
	}
	if p.update != nil {
		add(i, "update is lost", func(_ *world, p *process) {
			if !p.update.answered {
				p.strays = append(p.strays, *p.update.update)
			}
			if w.mutation == trustsUnknown {
				p.machine.proposed = proposal{}
			}
			p.machine.Unknown()
			p.update = nil
		})
	}
	for s := range p.strays {
		add(i, "old update arrives", func(w *world, p *process) {
			w.arrive(&request{update: &p.strays[s]})
			p.strays = slices.Delete(p.strays, s, s+1)
		})
	}
	if p.alive != nil && !p.alive.answered {
		add(i, "keep-alive arrives", func(w *world, p *process) { w.keepAlive(p) })
	}
	if p.alive != nil {
		add(i, "keep-alive is lost", func(_ *world, p *process) { p.alive = nil })
	}
}

// ofProcess adds what a process can do.
func (w *world) ofProcess(i int, p *process, add func(int, string, func(*world, *process))) {
	if p.machine.session == 0 {
		add(i, "begins a session", (*world).begin)
	} else if p.alive == nil {
		add(i, "sends keep-alive", func(w *world, p *process) { p.alive = &request{session: p.machine.session, sent: w.now} })
	}
	if p.read < w.stored.revision {
		add(i, "reads the newest", func(w *world, p *process) { w.read(p, w.stored) })
	}
	for _, s := range w.past {
		if s.revision == p.read || s.revision == p.read+1 && p.read+1 < w.stored.revision {
			name := "reads the next revision"
			if s.revision == p.read {
				name = "reads the same again"
			}
			add(i, name, func(w *world, p *process) { w.read(p, s) })
		}
	}
	if p.update != nil && p.update.answered {
		add(i, "receives the result", (*world).receive)
	}
	if p.alive != nil && p.alive.answered {
		add(i, "receives keep-alive", (*world).keptAlive)
	}
	if p.advanced {
		add(i, "proposes", (*world).propose)
	} else {
		add(i, "advances", (*world).advance)
	}
	if p.longest < unit || w.inFlight(i) < p.out.Share { // otherwise it changes nothing
		add(i, "picks for a moment", func(w *world, p *process) { w.pick(i, p, unit) })
	}
	add(i, "picks for a long time", func(w *world, p *process) { w.pick(i, p, maxTTL) })
	if p.machine.limit != 1 {
		add(i, "gets the limit 1", func(_ *world, p *process) { p.machine.SetLimit(1) })
	}
	if p.machine.limit != 3 {
		add(i, "gets the limit 3", func(_ *world, p *process) { p.machine.SetLimit(3) })
	}
}

func (w *world) tick() {
	w.now += unit
	w.leases = slices.DeleteFunc(w.leases, func(l lease) bool { return l.expires <= w.now })
}

// kill ends a process. Its requests go on. The next process of the replica is started at once.
func (w *world) kill(p *process) {
	if p.update != nil && !p.update.answered {
		p.strays = append(p.strays, *p.update.update)
	}
	p.dead, p.update, p.alive = true, nil, nil
	w.start()
}

func (w *world) expire(i int) {
	w.commit(func(s *stored) { s.sessions = slices.Delete(slices.Clone(s.sessions), i, i+1) })
	w.expiries = slices.Delete(w.expiries, i, i+1)
}

// begin creates a session and reads the newest record.
func (w *world) begin(p *process) {
	w.begun++
	w.commit(func(s *stored) { s.sessions = append(slices.Clone(s.sessions), Session{p.id, w.begun}) })
	w.expiries = append(w.expiries, w.now+sessionTTL)
	if w.mutation == keepsSession {
		for i, e := range w.stored.record.Entries {
			if e.Replica == p.id {
				w.stored.record.Entries = slices.Clone(w.stored.record.Entries)
				w.stored.record.Entries[i].Session = w.begun // as if it had been published
			}
		}
	}
	s := w.stored
	at := s.changed
	if !s.exists {
		at = s.revision
	}
	p.machine.Begin(w.begun, w.now+sessionTTL, s.record, at, s.exists)
	p.machine.Live(slices.SortedFunc(slices.Values(s.sessions), Session.Compare), s.revision)
	p.read = s.revision
	p.alive = nil
}

// keepAlive is what the store does with one. It answers for a session that has ended as well.
func (w *world) keepAlive(p *process) {
	p.alive.answered = true
	for i, s := range w.stored.sessions {
		if s.ID == p.alive.session {
			p.alive.ok = true
			w.expiries[i] = w.now + sessionTTL
		}
	}
}

func (w *world) keptAlive(p *process) {
	since := p.alive.sent
	if w.mutation == deadlineFromReply {
		since = w.now
	}
	if p.alive.ok {
		p.machine.KeptAlive(p.alive.session, since+sessionTTL)
	} else if p.alive.session == p.machine.session {
		p.machine.Lost()
	}
	p.alive = nil
}

// arrive is what the store does with an update.
func (w *world) arrive(r *request) {
	r.answered = true
	if w.stored.exists && r.update.Base >= w.stored.changed || !w.stored.exists && !r.update.Exists {
		r.ok = true
		w.commit(func(s *stored) {
			s.record, s.exists, s.changed = r.update.Record, len(r.update.Record.Entries) > 0, s.revision+1
		})
	}
	r.is = w.stored
}

func (w *world) receive(p *process) {
	r := p.update
	p.update, p.late = nil, false
	if r.ok {
		p.machine.Updated(*r.update, r.is.changed)
		return
	}
	p.machine.Conflict()
	w.see(p, r.is)
}

func (w *world) read(p *process, s stored) {
	p.read = s.revision
	w.see(p, s)
	p.machine.Live(slices.SortedFunc(slices.Values(s.sessions), Session.Compare), s.revision)
}

func (w *world) see(p *process, s stored) {
	if w.mutation == returnsAtOnce {
		s.record.Entries = slices.Clone(s.record.Entries)
		for i := range s.record.Entries {
			if s.record.Entries[i].Replica != p.id {
				s.record.Entries[i].Bound = 0
			}
		}
	}
	p.machine.Seen(s.record, s.changed, s.exists)
}

func (w *world) advance(p *process) {
	i := slices.IndexFunc(w.processes, func(q process) bool { return q.id == p.id })
	out := p.machine.Advance(w.now, Use{w.inFlight(i), p.refused, p.longest})
	if w.mutation == shrinksLate && out.Share < p.out.Share {
		out.Share, p.late = p.out.Share, true
	}
	p.out, p.refused, p.longest, p.advanced = out, 0, 0, true
}

func (w *world) propose(p *process) {
	i := slices.IndexFunc(w.processes, func(q process) bool { return q.id == p.id })
	p.advanced = false
	inFlight := w.inFlight(i)
	if p.late {
		inFlight = min(inFlight, p.machine.plan.share) // read before the share was in effect
	}
	u := p.machine.Propose(inFlight, p.longest)
	if u == nil {
		return
	}
	p.update = &request{update: u}
	if e, ok := u.Record.Find(p.id); ok && w.mutation == growsFirst {
		p.out.Share = max(p.out.Share, e.Share)
	}
}

// pick takes a lease if the process may.
func (w *world) pick(i int, p *process, ttl time.Duration) {
	p.longest = max(p.longest, ttl)
	switch {
	case w.now >= p.out.Deadline && w.mutation != ignoresDeadline, w.inFlight(i) >= p.out.Share:
		p.refused = min(p.refused+1, 2)
	case ttl > p.out.Bound && w.mutation != boundsLate:
	default:
		at := slices.IndexFunc(w.leases, func(l lease) bool { return l.process > i })
		if at < 0 {
			at = len(w.leases)
		}
		w.leases = slices.Insert(w.leases, at, lease{i, w.now + ttl})
	}
}

// check compares what all processes hold, or may hold, with what is published, and that with the limit.
func (w *world) check() error {
	all := int64(0)
	for i := range w.processes {
		p := &w.processes[i]
		may := w.inFlight(i)
		if !p.dead && (w.now < p.out.Deadline || w.mutation == ignoresDeadline) {
			may = max(may, p.out.Share)
		}
		all += may
		e, _ := w.stored.record.Find(p.id)
		if may > e.Share {
			return fmt.Errorf("%s may hold %d, and has published %d", p.id, may, e.Share)
		}
		for _, l := range w.leases {
			if l.process == i && l.expires-w.now > e.Bound {
				return fmt.Errorf("%s has a lease for %v, and has published %v", p.id, l.expires-w.now, e.Bound)
			}
		}
	}
	limit := w.limits()
	sum := w.stored.record.Sum()
	if sum > max(limit, w.ceiling) || all > sum {
		return fmt.Errorf("%d in all, %d published, limit %d, %d before: %+v, from %+v", all, sum, limit, w.ceiling, w.stored, w.past[max(0, len(w.past)-2)])
	}
	w.ceiling = max(limit, sum) // of a lower limit, it only decreases
	return nil
}

// limits returns the highest limit that a process has, or had when it made an update that may still arrive.
func (w *world) limits() int64 {
	limit := int64(0)
	for i := range w.processes {
		p := &w.processes[i]
		if !p.dead {
			limit = max(limit, p.machine.limit)
		}
		updates := p.strays
		if p.update != nil && !p.update.answered {
			updates = append(slices.Clone(updates), *p.update.update)
		}
		for _, u := range updates {
			e, _ := u.Record.Find(p.id)
			limit = max(limit, e.Limit)
		}
	}
	return limit
}

// hash identifies the state for what can follow.
func (w *world) hash(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	b := make([]byte, 0, 2048)
	n := func(values ...int64) {
		for _, v := range values {
			b = binary.AppendVarint(b, v)
		}
	}
	t := func(d time.Duration) { n(int64(d - w.now)) }
	flag := func(f bool) {
		if f {
			n(1)
		} else {
			n(0)
		}
	}
	record := func(r Record) {
		n(int64(len(r.Entries)))
		for _, e := range r.Entries {
			b = append(b, e.Replica...)
			n(e.Session, e.Limit, e.Share, e.Demand, int64(e.Bound))
		}
	}
	state := func(s stored) {
		n(s.revision, s.changed, int64(len(s.sessions)))
		record(s.record)
		for _, x := range s.sessions {
			n(x.ID)
		}
	}
	state(w.stored)
	n(w.limit, w.ceiling, w.begun)
	for _, e := range w.expiries {
		t(max(e, w.now))
	}
	for _, l := range w.leases {
		n(int64(l.process))
		t(l.expires)
	}
	for i := range w.processes {
		p, m := &w.processes[i], &w.processes[i].machine
		flag(p.dead)
		if p.dead {
			for _, u := range p.strays {
				n(u.Base)
				record(u.Record)
			}
			continue
		}
		flag(p.paused)
		flag(p.late)
		flag(p.advanced)
		n(p.out.Share, int64(p.out.Bound), p.refused, int64(p.longest), p.read, int64(len(p.strays)))
		t(max(p.out.Deadline, w.now))
		for _, r := range []*request{p.update, p.alive} {
			flag(r != nil)
			if r == nil {
				continue
			}
			flag(r.answered)
			flag(r.ok)
			n(r.session, r.is.revision)
			t(r.sent)
			if r.update != nil {
				n(r.update.Base)
				record(r.update.Record)
			}
		}
		for _, u := range p.strays {
			n(u.Base)
			record(u.Record)
		}
		n(m.limit, m.session, m.revision, m.base, m.known, m.proposed.base, m.proposed.share, int64(m.proposed.bound))
		t(max(m.deadline, w.now))
		record(m.record)
		flag(m.read)
		flag(m.planned)
		flag(m.proposed.pending)
		flag(m.waiting)
		for _, d := range m.dead {
			n(d.session)
			t(d.at)
		}
		n(m.demand.current, m.demand.older, int64(m.ttls.current), int64(m.ttls.older))
		t(max(m.demand.since, w.now-5*unit))
		t(max(m.ttls.since, w.now-5*unit))
		t(max(m.written, w.now-5*unit))
		t(max(m.now, w.now-5*unit))
		n(m.plan.share, m.plan.demand, int64(m.plan.bound), int64(len(m.plan.remove)))
		flag(m.plan.write)
		flag(m.plan.urgent)
	}
	_, _ = h.Write(b)
	return h.Sum64()
}
