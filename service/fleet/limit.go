package fleet

import (
	"context"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/fleet/share"
	"github.com/lbd-dev/lbd/xds/resource"
)

// conflictWait is the longest time before the next attempt after one conflict.
const conflictWait = 10 * time.Millisecond

// want is the limit that the config of a cluster has.
type want struct {
	limit int64
	users int // leaves with it
}

// limit is one limit of the fleet.
type limit struct {
	key      string
	counters *policy.ClusterCounters
	// retired are counters that the cluster had before, with requests in flight.
	retired  []*policy.ClusterCounters
	machine  *share.Machine
	rejected uint64
	longest  time.Duration // not yet given to the machine
	err      string        // why the record cannot be read; empty if it can

	due       bool // there is something that the machine has not decided about
	conflicts int  // in a row
	retryAt   time.Duration
}

// keyOf returns the key of a limit.
func keyOf(k resource.ServiceKey) string {
	if k.EDSServiceName == "" {
		return url.PathEscape(k.Cluster)
	}
	return url.PathEscape(k.Cluster) + "/" + url.PathEscape(k.EDSServiceName)
}

// serviceOf is the inverse of keyOf.
func serviceOf(key string) (resource.ServiceKey, bool) {
	cluster, service, _ := strings.Cut(key, "/")
	c, err1 := url.PathUnescape(cluster)
	s, err2 := url.PathUnescape(service)
	k := resource.ServiceKey{Cluster: c, EDSServiceName: s}
	return k, err1 == nil && err2 == nil && keyOf(k) == key
}

// follow makes the machines those of the limits that are wanted.
func (f *Fleet) follow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, w := range f.wanted {
		key := keyOf(c.Key())
		l := f.limits[key]
		if l == nil {
			l = f.add(key, c)
		}
		l.use(c)
		if l.machine.SetLimit(w.limit) {
			l.due = true
		}
	}
	now := f.clock()
	for key, l := range f.limits {
		if l.retryAt > 0 && now >= l.retryAt {
			l.due = true
		}
		if _, ok := f.wanted[l.counters]; ok {
			continue
		}
		if l.machine.Leave() {
			l.due = true
		}
		if l.machine.Gone() && len(l.retired) == 0 {
			l.close()
			delete(f.limits, key)
		}
	}
}

func (f *Fleet) add(key string, c *policy.ClusterCounters) *limit {
	l := &limit{key: key, counters: c, rejected: c.Breaker.Rejected(), due: true}
	l.machine = share.New(share.Config{
		Replica: f.id, Fast: fast, Slow: slow, Margin: margin + rand.N(spread), MinBound: minBound, MaxBound: f.options.MaxTTL,
	})
	f.limits[key] = l
	if f.session != 0 {
		f.begin(l)
	}
	return l
}

// use makes counters those of the limit. Picks of a tree that was replaced may use the former ones for a
// moment, and their requests are in flight for longer.
func (l *limit) use(c *policy.ClusterCounters) {
	if l.counters == c {
		return
	}
	l.counters.SharedLimit().Set(0, 0, 0) // before its requests are counted
	l.retired = append(l.retired, l.counters)
	l.retired = slices.DeleteFunc(l.retired, func(r *policy.ClusterCounters) bool { return r == c }) // it may be back
	l.counters, l.rejected, l.due = c, c.Breaker.Rejected(), true
}

// close admits nothing more.
func (l *limit) close() {
	for _, c := range append(l.retired, l.counters) {
		c.SharedLimit().Set(0, 0, 0)
		c.SharedLimit().Describe(policy.ShareState{})
	}
}

// begin gives a machine the session.
func (f *Fleet) begin(l *limit) {
	s := f.view.record(l.key)
	l.machine.Begin(f.session, f.deadline, s.record, s.revision, s.exists)
	f.damaged(l, s.err)
	l.machine.Live(f.list, f.view.revision)
	l.due, l.conflicts, l.retryAt = true, 0, 0
}

// damaged reports that a record cannot be read, once.
func (f *Fleet) damaged(l *limit, err error) {
	text := fault.Text(err)
	if text != "" && text != l.err {
		f.log.Error("the record of a limit of the fleet cannot be read", "limit", l.key, "error", err)
	}
	l.err = text
}

// inFlight returns the requests that the process holds. It must be called after the share was set.
func (l *limit) inFlight() (all, retired int64) {
	l.retired = slices.DeleteFunc(l.retired, func(c *policy.ClusterCounters) bool {
		n := c.Breaker.InFlight()
		retired += n
		return n == 0
	})
	return l.counters.Breaker.InFlight() + retired, retired
}

// set sets what picks may do. Retired counters get no more requests.
func (l *limit) set(out share.Output, retired int64) {
	for _, c := range l.retired {
		c.SharedLimit().Set(0, out.Bound, out.Deadline)
	}
	l.counters.SharedLimit().Set(uint32(max(0, out.Share-retired)), out.Bound, out.Deadline) // at most the limit, which is a uint32
}

// turn lets the machine of a limit decide, and attempts its update.
func (f *Fleet) turn(ctx context.Context, l *limit, calls *sync.WaitGroup) {
	l.due = false
	shared := l.counters.SharedLimit()
	inFlight, retired := l.inFlight()
	now, rejected := f.clock(), l.counters.Breaker.Rejected()
	use := share.Use{
		InFlight: inFlight, Refused: int64(min(rejected-l.rejected, 1<<32)),
		Longest: max(l.longest, l.takeLongest()),
	}
	l.rejected, l.longest = rejected, 0
	out := l.machine.Advance(now, use)
	l.set(out, retired)
	st := l.machine.Status()
	state := policy.ShareState{Joined: f.session != 0 && now < out.Deadline, Limit: st.Limit, Demand: st.Demand, Spare: st.Spare}
	if state.Joined { // otherwise etcd may have given the share to others
		state.Share = out.Share
	}
	shared.Describe(state)
	if l.err != "" || now < l.retryAt {
		return // what cannot be read must not be replaced
	}
	l.retryAt = 0
	l.longest = l.takeLongest()
	inFlight, _ = l.inFlight()
	u := l.machine.Propose(inFlight, l.longest)
	if u == nil {
		return
	}
	calls.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		replaced, revision, err := f.store.replace(ctx, l.key, *u)
		f.do(func() { f.replaced(l, *u, replaced, revision, err) })
	})
}

// takeLongest returns the longest ttl that was asked for.
func (l *limit) takeLongest() time.Duration {
	longest := l.counters.SharedLimit().TakeLongest()
	for _, c := range l.retired {
		longest = max(longest, c.SharedLimit().TakeLongest())
	}
	return longest
}

func (f *Fleet) replaced(l *limit, u share.Update, replaced bool, revision int64, err error) {
	l.due = true
	switch {
	case err != nil:
		f.log.Debug("a share of a limit may not be published", "limit", l.key, "error", err)
		l.machine.Unknown()
	case replaced:
		l.conflicts = 0
		l.machine.Updated(u, revision)
	default:
		l.machine.Conflict()
		f.backOff(l)
	}
}

// backOff lets a random time pass before the next attempt, since others attempt the same.
func (f *Fleet) backOff(l *limit) {
	d := rand.N(min(conflictWait<<min(l.conflicts, 10), slow))
	l.conflicts++
	l.retryAt = f.clock() + d
	time.AfterFunc(d, f.wake.Wake)
}

func (f *Fleet) see(l *limit, s stored) {
	l.due = true
	f.damaged(l, s.err)
	if s.err == nil {
		l.machine.Seen(s.record, s.revision, s.exists)
	}
}
