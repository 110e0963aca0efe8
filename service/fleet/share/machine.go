package share

import (
	"cmp"
	"slices"
	"time"
)

// Config is fixed for a Machine.
type Config struct {
	// Replica identifies this process among all that ever have the same record.
	Replica string
	// Fast is the shortest time between two updates, for what others or this process need now:
	// requests are refused although others do not use their shares. Slow is that for what can wait.
	Fast, Slow time.Duration
	// Margin is added to the time for which the share of a dead process is kept, since clocks
	// differ in their rates.
	Margin time.Duration
	// MinBound and MaxBound limit the bounds of the ttl.
	MinBound, MaxBound time.Duration
}

// Use is what the caller of a Machine measured of its own process.
type Use struct {
	// InFlight is the number of requests that the process holds.
	InFlight int64
	// Refused is how many were refused since the last Use, for want of share.
	Refused int64
	// Longest is the longest ttl that was asked for since the last Use, whether or not it was
	// granted.
	Longest time.Duration
}

// Output is what picks may do from now on.
type Output struct {
	// Share is how many requests may be in flight; a request must not be admitted with more, but those
	// that are in flight stay.
	Share int64
	// Bound is the longest ttl of a lease.
	Bound time.Duration
	// Deadline is the time from which nothing is admitted.
	Deadline time.Duration
}

// Update asks to replace the record if it has not changed since the revision Base. Exists is false if there was none
// then. Record is the one before with the entry Own, if it has a Replica, and without the entries of Removed.
type Update struct {
	Base    int64
	Exists  bool
	Record  Record
	Own     Entry
	Removed []string
}

// Status is what a process knows of the limit.
type Status struct {
	// Limit is the limit in force.
	Limit int64
	// Demand is how many requests the process would like to hold.
	Demand int64
	// Spare is what others do not need: free parts of the limit, and of their shares. The process can
	// get it.
	Spare int64
}

// Session is the session of a live process.
type Session struct {
	Replica string
	ID      int64
}

// Compare orders sessions as the entries of a record are ordered.
func (s Session) Compare(o Session) int {
	return cmp.Or(cmp.Compare(s.Replica, o.Replica), cmp.Compare(s.ID, o.ID))
}

// Machine is the state of one replica's share of one limit. All times are of one clock that is
// never set, as durations since any moment. It belongs to one goroutine, which calls
//
//   - [Machine.Begin], [Machine.KeptAlive] and [Machine.Lost] for the session,
//   - [Machine.Seen] and [Machine.Live] for what it reads, in any order, repeatedly,
//   - [Machine.Advance] after each of these and at each tick, and applies the Output,
//   - then [Machine.Propose], with nothing in between; it attempts the Update and reports the result with
//     [Machine.Updated], [Machine.Seen] (a conflict), or [Machine.Unknown].
type Machine struct {
	Config

	limit   int64
	leaving bool

	session  int64 // 0 for none
	deadline time.Duration

	record   Record
	revision int64 // of the last change of record
	base     int64 // revision, or 0 if there is no record
	read     bool  // record was read in this session
	sessions []Session
	known    int64  // the revision of sessions
	dead     []dead // entries of record whose sessions have ended

	proposed proposal
	waiting  bool // for the result of an update

	demand demand
	ttls   ttls

	planned bool // plan is of what is known now
	status  Status
	now     time.Duration
	written time.Duration // when the last update was proposed
	before  time.Duration // when the one before it was
	plan    plan
}

// dead is an entry whose session was first seen to have ended at a time.
type dead struct {
	replica string
	session int64
	at      time.Duration
}

// proposal is the least that updates of one base have, of which each may be in the store by now, or
// later.
type proposal struct {
	pending bool
	base    int64
	share   int64
	bound   time.Duration
}

// plan is what the process would like the record to have.
type plan struct {
	share, demand int64
	bound         time.Duration
	remove        []string // dead replicas whose time is over
	write, urgent bool
}

// maxRemoved is how many entries one update removes at most, below the limit of etcd's transactions.
const maxRemoved = 100

// crowd is how many processes a record may have without longer times between updates.
const crowd = 32

// New returns a machine without a session.
func New(c Config) *Machine { return &Machine{Config: c, written: -c.Slow, before: -c.Slow} }

// SetLimit sets the limit of the fleet as this process knows it, and reports whether that changes
// anything.
func (m *Machine) SetLimit(limit int64) (changed bool) {
	if changed = m.limit != limit || m.leaving; changed {
		m.limit, m.leaving, m.planned = limit, false, false
	}
	return changed
}

// Leave makes the process give its share away, for good or until SetLimit. It reports whether that
// changes anything.
func (m *Machine) Leave() (changed bool) {
	if changed = !m.leaving; changed {
		m.leaving, m.planned = true, false
	}
	return changed
}

// Gone reports whether the record has no entry of this process, after Leave.
func (m *Machine) Gone() bool {
	_, ok := m.record.Find(m.Replica)
	return m.leaving && !ok && !m.proposed.pending
}

// Settled reports whether the record has what the process would like it to have, as of Advance.
func (m *Machine) Settled() bool { return m.planned && !m.plan.write && !m.waiting }

// Begin begins a session. deadline is as in KeptAlive. The record must have been read after the
// session existed, and by a linearizable read; exists reports whether there is one, and revision is
// that of its last change, or that of the read.
func (m *Machine) Begin(session int64, deadline time.Duration, r Record, revision int64, exists bool) {
	m.session, m.deadline, m.read, m.planned = session, deadline, true, false
	m.revision = 0 // also if the store has lost its newest revisions
	m.sessions, m.known, m.dead = nil, 0, nil
	m.Seen(r, revision, exists)
}

// KeptAlive moves the deadline: a time before which the store cannot have ended the session,
// counted from before the request was sent.
func (m *Machine) KeptAlive(session int64, deadline time.Duration) {
	if session == m.session {
		m.deadline = max(m.deadline, deadline)
	}
}

// Lost ends the session: nothing is admitted from now on.
func (m *Machine) Lost() { m.session, m.read, m.planned = 0, false, false }

// Seen takes a record that was read: its content since a revision.
func (m *Machine) Seen(r Record, revision int64, exists bool) {
	if revision <= m.revision {
		return
	}
	m.record, m.revision, m.base, m.planned = r, revision, 0, false
	if exists {
		m.base = revision
	}
	if m.base != m.proposed.base {
		m.proposed = proposal{}
	}
	m.dead = slices.DeleteFunc(slices.Clone(m.dead), func(d dead) bool {
		e, ok := r.Find(d.replica)
		return !ok || e.Session != d.session
	})
}

// Live takes the sessions that existed at a revision, in the order of [Session.Compare].
func (m *Machine) Live(sessions []Session, revision int64) {
	if revision < m.known {
		return
	}
	m.sessions, m.known = sessions, revision
}

// Updated takes the revision of the update that succeeded.
func (m *Machine) Updated(u Update, revision int64) {
	m.waiting = false
	m.Seen(u.Record, revision, len(u.Record.Entries) > 0)
}

// Conflict reports that the update was not applied, and will not be. The caller passes the record
// that is there instead to Seen, as soon as it has that. The next update need not wait.
func (m *Machine) Conflict() { m.waiting, m.written = false, m.before }

// Unknown reports that it is not known whether the update was, or will be, applied.
func (m *Machine) Unknown() { m.waiting = false }

// published returns the least that the record may have of this process.
func (m *Machine) published() (share int64, bound time.Duration) {
	e, ok := m.record.Find(m.Replica)
	if !ok || e.Session != m.session || !m.read || m.session == 0 {
		return 0, 0
	}
	share, bound = e.Share, e.Bound
	if m.proposed.pending {
		share, bound = min(share, m.proposed.share), min(bound, m.proposed.bound)
	}
	return share, bound
}

// Advance returns what picks may do, as of now.
func (m *Machine) Advance(now time.Duration, u Use) Output {
	m.now, m.planned = now, true
	m.bury()
	e, ok := m.record.Find(m.Replica)
	m.demand.add(now, u.InFlight+u.Refused)
	m.ttls.add(now, e.Bound, u.Longest)
	m.plan = m.decide(e, ok, u.InFlight)
	share, bound := m.published()
	return Output{
		Share:    max(0, min(share, m.plan.share, m.limit)),
		Bound:    min(bound, m.plan.bound),
		Deadline: m.deadline,
	}
}

// Status returns what the process knew at the last Advance.
func (m *Machine) Status() Status { return m.status }

// Record returns the record as it was seen last.
func (m *Machine) Record() Record { return m.record }

// Left returns how long the share of an entry is kept at most, after its session has ended.
func (m *Machine) Left(e Entry) time.Duration {
	kept := e.Bound + m.Margin
	for _, d := range m.dead {
		if d.replica == e.Replica && d.session == e.Session {
			return max(0, kept-(m.now-d.at))
		}
	}
	return kept
}

// bury notes entries whose session has ended. A session exists before the record has an entry of
// it, so it has ended if it does not exist at the revision of the record or later.
func (m *Machine) bury() {
	if m.known < m.revision {
		return
	}
	sessions := m.sessions
	for _, e := range m.record.Entries {
		own := Session{e.Replica, e.Session}
		for len(sessions) > 0 && sessions[0].Compare(own) < 0 {
			sessions = sessions[1:]
		}
		if e.Replica == m.Replica || len(sessions) > 0 && sessions[0] == own ||
			slices.ContainsFunc(m.dead, func(d dead) bool { return d.replica == e.Replica && d.session == e.Session }) {
			continue
		}
		m.dead = append(slices.Clone(m.dead), dead{e.Replica, e.Session, m.now})
	}
}

// isDead reports whether the session of e has ended, and over whether its share is free since.
func (m *Machine) isDead(e Entry) (isDead, over bool) {
	for _, d := range m.dead {
		if d.replica == e.Replica && d.session == e.Session {
			return true, m.now-d.at >= e.Bound+m.Margin
		}
	}
	return false, false
}

// Propose returns the update to attempt now, or nil. inFlight and longest are as in Use, and must be
// read after the Output was in effect.
func (m *Machine) Propose(inFlight int64, longest time.Duration) *Update {
	m.ttls.add(m.now, 0, longest)
	p := &m.plan
	interval := m.Slow
	if p.urgent {
		interval = m.Fast
	}
	// Each update reaches every process, so more of them have fewer each.
	interval += interval * time.Duration(len(m.record.Entries)/crowd)
	if !m.planned || !p.write || m.waiting || m.session == 0 || !m.read || m.now >= m.deadline || m.now-m.written < interval {
		return nil
	}
	u := &Update{Base: m.revision, Exists: m.base > 0, Removed: slices.Clip(p.remove)}
	own := Entry{
		Replica: m.Replica, Session: m.session, Limit: m.limit,
		Share: max(p.share, inFlight), Demand: p.demand, Bound: max(p.bound, m.roundUp(longest)),
	}
	if m.leaving && own.Share == 0 {
		u.Removed = append(u.Removed, m.Replica)
	} else {
		u.Own = own
	}
	u.Record = m.record.Without(func(e Entry) bool { return slices.Contains(u.Removed, e.Replica) })
	if u.Own.Replica != "" {
		u.Record = u.Record.With(own)
	}
	if !m.proposed.pending {
		m.proposed = proposal{true, m.base, own.Share, own.Bound}
	} else {
		m.proposed.share, m.proposed.bound = min(m.proposed.share, own.Share), min(m.proposed.bound, own.Bound)
	}
	m.before, m.written, m.waiting = m.written, m.now, true
	return u
}

// roundUp returns the bound for a ttl: the next multiple of MinBound.
func (m *Machine) roundUp(ttl time.Duration) time.Duration {
	b := max(ttl, m.MinBound) + m.MinBound - 1
	return min(b-b%m.MinBound, m.MaxBound)
}
