package share

import (
	"slices"
	"time"
)

// decide returns what the process would like the record to have. own is its entry, if it exists.
func (m *Machine) decide(own Entry, exists bool, inFlight int64) plan {
	view := m.view(own)
	demand := min(m.demand.peak(m.now), m.limit)
	m.status = Status{Limit: view.limit, Demand: demand, Spare: view.spare()}
	p := plan{share: own.Share, demand: demand, bound: m.roundUp(m.ttls.longest()), remove: view.over}
	if m.leaving {
		p.share, p.demand = 0, 0
		p.write, p.urgent = exists && (inFlight < own.Share || own.Share == 0 || own.Session != m.session), true
		return p
	}
	mine := view.targets(p.demand)
	target := mine[view.own]
	lacks := p.demand > own.Share && target > own.Share
	needed := lacks || view.needed(mine)
	late := m.now-m.written >= m.Slow && view.differs(own.Share, target)
	switch {
	case own.Share > target && (needed || late || view.limit < view.sum):
		p.share = target
	case own.Share < target && (lacks || late || !exists):
		p.share = min(target, own.Share+max(0, view.limit-view.sum))
	default:
	}
	// Leases that are older than the share count as well.
	next := max(p.share, inFlight)
	changes := own.Session != m.session || own.Limit != m.limit || own.Bound < p.bound || inFlight > own.Share
	informs := needed && view.changes(own.Demand, mine) || lacks && own.Demand <= own.Share
	reacts := next != own.Share && (needed || view.limit < view.sum)
	p.urgent = !exists || changes || informs || reacts || m.proposed.pending || lacks && len(view.over) > 0
	p.write = p.urgent || late && (next != own.Share || view.differs(own.Demand, p.demand)) || own.Bound > p.bound+p.bound/4 || len(view.over) > 0
	return p
}

// view is the record as the plan needs it.
type view struct {
	limit   int64   // in force
	sum     int64   // of all shares that are not free
	divided int64   // limit without the shares of dead replicas
	own     int     // place of this process
	live    []Entry // those of live processes, with that of this one
	demands []int64 // of live
	over    []string
}

func (m *Machine) view(own Entry) *view {
	v := &view{limit: m.limit, live: make([]Entry, 0, len(m.record.Entries)+1)}
	add := func(e Entry) {
		v.live = append(v.live, e)
		v.demands = append(v.demands, e.Demand)
	}
	own.Replica = m.Replica
	gone := int64(0)
	for _, e := range m.record.With(own).Entries {
		if e.Replica == m.Replica {
			v.own = len(v.live)
			add(e)
			continue
		}
		dead, over := m.isDead(e)
		switch {
		case over && len(v.over) < maxRemoved:
			v.over = append(v.over, e.Replica)
		case dead:
			gone += e.Share
		default:
			v.limit = min(v.limit, e.Limit)
			add(e)
		}
	}
	for _, e := range v.live {
		v.sum += e.Share
	}
	v.sum += gone
	v.divided = max(0, v.limit-gone)
	return v
}

// spare returns what other live processes do not need of the limit.
func (v *view) spare() int64 {
	n := max(0, v.limit-v.sum)
	for i, e := range v.live {
		if i != v.own {
			n += max(0, e.Share-e.Demand)
		}
	}
	return n
}

// targets returns those of all live processes, with another demand of this one.
func (v *view) targets(demand int64) []int64 {
	v.demands[v.own] = demand
	return targets(v.divided, v.demands)
}

// needed reports whether another process lacks requests that it should have.
func (v *view) needed(targets []int64) bool {
	for i, e := range v.live {
		if i != v.own && e.Demand > e.Share && targets[i] > e.Share {
			return true
		}
	}
	return false
}

// changes reports whether others have other targets because of a demand that they do not know.
func (v *view) changes(published int64, now []int64) bool {
	current := v.demands[v.own]
	before := v.targets(published)
	v.demands[v.own] = current
	return !slices.Equal(now, before)
}

// differs reports whether the difference matters while no process lacks requests.
func (v *view) differs(a, b int64) bool {
	return max(a-b, b-a) > v.limit/int64(8*len(v.live))
}

// demandWindow is half of the time for which demand is remembered.
const demandWindow = 500 * time.Millisecond

// demand is the largest number of requests that were wanted at once, recently.
type demand struct {
	since          time.Duration
	current, older int64
}

func (d *demand) add(now time.Duration, n int64) {
	d.roll(now)
	d.current = max(d.current, n)
}

func (d *demand) roll(now time.Duration) {
	switch age := now - d.since; {
	case age >= 2*demandWindow:
		d.since, d.current, d.older = now, 0, 0
	case age >= demandWindow:
		d.since, d.current, d.older = now, 0, d.current
	default:
	}
}

func (d *demand) peak(now time.Duration) int64 {
	d.roll(now)
	return max(d.current, d.older)
}

// ttls has the longest ttl of all leases that may be held. It is divided in two times that are
// each as long as the bound: a lease that is older than both has ended.
type ttls struct {
	since          time.Duration
	current, older time.Duration
}

func (l *ttls) add(now, bound, ttl time.Duration) {
	if bound > 0 && now-l.since >= bound {
		l.since, l.older, l.current = now, l.current, 0
	}
	l.current = max(l.current, ttl)
}

func (l *ttls) longest() time.Duration { return max(l.current, l.older) }
