package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// targets is every hosted target. Reading takes no lock.
type targets struct {
	// Fixed after build.
	build     func(name string) *target
	counters  *policy.Counters
	maxSeries int // how many accounts, and how many clusters, have series of their own
	// away reports whether no management server that a target uses for a resource is
	// connected.
	away func(target, name string) bool
	// reports is nil without a management server.
	reports *reports

	rest          counts // of all other accounts
	restEnded     tally[Outcome]
	restEjections tally[bool]
	current       atomic.Pointer[hosted] // replaced under mu
	closing       sync.WaitGroup         // trees that are being closed

	mu         sync.Mutex // guards the rest, and what targets say that it guards
	clusters   map[string]*shared
	counted    map[policy.ServiceKey]*leafCounters
	withSeries int // accounts
	sharing    int // clusters with series of their own
	closed     bool
}

// hosted are the targets at one moment. It is never changed.
type hosted struct {
	clusters map[string]*target // the cluster: targets, by cluster
	xds      map[string]*target // the others, by name
	short    map[string]*target // the same, without what all such names begin with
	ordered  []*target          // the same, by name
}

func newTargets(build func(string) *target, counters *policy.Counters) *targets {
	ts := &targets{
		build: build, counters: counters, maxSeries: MaxClustersWithSeries,
		away:     func(string, string) bool { return false },
		clusters: make(map[string]*shared), counted: make(map[policy.ServiceKey]*leafCounters),
	}
	ts.current.Store(&hosted{})
	return ts
}

// xds returns an xds target by its name, as TargetName takes it, or nil.
func (ts *targets) xds(name string) *target {
	h := ts.current.Load()
	if t := h.xds[name]; t != nil {
		return t
	}
	return h.short[targetKey(name)]
}

// named returns the target of a full name, or nil.
func (h *hosted) named(name string) *target {
	if cluster, ok := resolver.Cluster(name); ok {
		return h.clusters[cluster]
	}
	return h.xds[name]
}

// all returns the targets in order: by the names of their clusters, then the xds
// targets by theirs.
func (h *hosted) all() []*target {
	out := make([]*target, 0, len(h.clusters)+len(h.ordered))
	for _, name := range slices.Sorted(maps.Keys(h.clusters)) {
		out = append(out, h.clusters[name])
	}
	return append(out, h.ordered...)
}

// member returns the cluster as it is described where nobody says in which
// target: in its own, else in the first xds target that has it. It is nil where
// none has.
func (h *hosted) member(cluster string) *member {
	if t := h.clusters[cluster]; t != nil && t.newest.Load().only.known() {
		return t.newest.Load().only
	}
	for _, t := range h.ordered {
		if m := t.newest.Load().members[cluster]; m != nil {
			return m
		}
	}
	return nil
}

// each calls f with every cluster that picks can reach, in no order: as it is in
// its own tree, else in that of the first xds target. targets are the labels of
// the xds targets that have it.
func (h *hosted) each(f func(m *member, targets []string)) {
	livesIn := make(map[string][]string)
	for _, t := range h.ordered {
		for name := range t.newest.Load().members {
			livesIn[name] = append(livesIn[name], t.label)
		}
	}
	for name, t := range h.clusters {
		if m := t.newest.Load().only; m.known() {
			f(m, livesIn[name])
			delete(livesIn, name)
		}
	}
	for _, t := range h.ordered {
		for name, m := range t.newest.Load().members {
			if targets := livesIn[name]; targets != nil {
				f(m, targets)
				delete(livesIn, name)
			}
		}
	}
}

// livesIn returns the labels of the xds targets that have the cluster, in order.
func (h *hosted) livesIn(cluster string) []string {
	var out []string
	for _, t := range h.ordered {
		if t.newest.Load().members[cluster] != nil {
			out = append(out, t.label)
		}
	}
	return out
}

// sorted returns a view's members by the names of their clusters.
func (v *view) sorted() []*member {
	if v.only != nil {
		return []*member{v.only}
	}
	out := slices.Collect(maps.Values(v.members))
	slices.SortFunc(out, func(a, b *member) int { return strings.Compare(a.cluster, b.cluster) })
	return out
}

// apply builds and updates targets, and returns those that are no more: they are
// to be closed once no lock is held. It does not wait for the trees.
func (ts *targets) apply(changes []resolver.Change) (gone ended) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	gone = ended{of: ts}
	if ts.closed || len(changes) == 0 {
		return gone
	}
	next := newEdit(ts.current.Load())
	for _, c := range changes {
		t := next.now.named(c.Target)
		if c.Config == nil {
			if t != nil {
				next.remove(c.Target)
				ts.letGo(t)
				gone.targets = append(gone.targets, t)
			}
			continue
		}
		if t == nil {
			t = ts.build(c.Target)
			if t.label != "" {
				t.unrouted = ts.open(t, "")
			}
		}
		ts.follow(t, c.Config)
		t.offered = t.channel.Offer(c.Config)
		next.add(c.Target, t)
	}
	ts.current.Store(next.now)
	ts.closing.Add(len(gone.targets))
	return gone
}

// ended are targets that are no more, but for their trees.
type ended struct {
	of      *targets
	targets []*target
}

// close closes the trees. It must be called once, and holding no lock: what the
// trees still report may need one.
func (e ended) close() {
	for _, t := range e.targets {
		t.channel.Close()
		e.of.closing.Done()
	}
}

// edit is a change of what is hosted. It copies only what it changes.
type edit struct {
	now              *hosted
	clusters, others bool // that were copied
}

func newEdit(h *hosted) *edit {
	next := *h
	return &edit{now: &next}
}

// place returns the map of a target, as a copy that may be changed, and its key.
func (e *edit) place(name string) (m map[string]*target, key string) {
	if cluster, ok := resolver.Cluster(name); ok {
		if !e.clusters {
			e.now.clusters, e.clusters = cloned(e.now.clusters), true
		}
		return e.now.clusters, cluster
	}
	if !e.others {
		e.now.xds, e.others = cloned(e.now.xds), true
	}
	return e.now.xds, name
}

func cloned(m map[string]*target) map[string]*target {
	if m == nil {
		return make(map[string]*target)
	}
	return maps.Clone(m)
}

func (e *edit) add(name string, t *target) {
	if e.now.named(name) == t {
		return
	}
	m, key := e.place(name)
	m[key] = t
	e.order(t)
}

func (e *edit) remove(name string) {
	m, key := e.place(name)
	t := m[key]
	delete(m, key)
	e.order(t)
}

// order lists the xds targets anew, if t is one.
func (e *edit) order(t *target) {
	if t.label == "" {
		return
	}
	e.now.ordered = slices.SortedFunc(maps.Values(e.now.xds), func(a, b *target) int { return strings.Compare(a.name, b.name) })
	e.now.short = make(map[string]*target, len(e.now.xds))
	for _, t := range e.now.ordered {
		e.now.short[targetKey(t.name)] = t
	}
}

// follow lets a target take a config, before its tree does. It is called under
// ts.mu.
func (ts *targets) follow(t *target, config *resource.Config) {
	old := t.newest.Load()
	if old == nil {
		old = &view{}
	}
	next := &view{config: config, members: make(map[string]*member, len(config.Roots))}
	roots := config.Roots
	if config.Err != nil || config.Pending {
		roots = nil
	}
	for _, cluster := range roots {
		if next.members[cluster] == nil {
			next.members[cluster] = ts.join(t, old.members[cluster], cluster, config)
		}
	}
	if t.label == "" {
		next.only = next.members[roots[0]]
	}
	for cluster, m := range old.members {
		if next.members[cluster] == nil {
			ts.shut(m.account)
			ts.release(m.leaves)
		}
	}
	t.newest.Store(next)
}

// join is a cluster of a target in a newer config. was is what it was before, or
// nil.
func (ts *targets) join(t *target, was *member, cluster string, config *resource.Config) *member {
	if was == nil {
		was = &member{account: ts.open(t, cluster)}
	}
	m := &member{account: was.account, config: config, places: was.places, leaves: was.leaves}
	m.stale.Store(ts.stale(config, cluster))
	if was.isSameIn(config) {
		return m
	}
	m.places = was.places.follow(config, cluster)
	if m.clusterConfig().Err != nil {
		return m
	}
	m.leaves = nil
	for _, cc := range config.Leaves(cluster) {
		if cc.Err != nil {
			continue // it counts nothing
		}
		l := ts.newLeaf(cc)
		ts.reports.follow(t.name, l)
		m.leaves = append(m.leaves, l)
	}
	ts.release(was.leaves) // after the new ones are held: most are the same
	return m
}

// isSameIn reports whether a newer config has the cluster, and what it comes down
// to, as it is.
func (m *member) isSameIn(config *resource.Config) bool {
	if m.config == nil || m.clusterConfig() != config.Clusters[m.cluster] {
		return false
	}
	return !slices.ContainsFunc(m.clusterConfig().Leaves, func(name string) bool {
		return m.config.Clusters[name] != config.Clusters[name]
	})
}

// letGo gives back what a target holds. It is called under ts.mu.
func (ts *targets) letGo(t *target) {
	for _, m := range t.newest.Load().members {
		ts.shut(m.account)
		ts.release(m.leaves)
	}
	if t.unrouted != nil {
		ts.shut(t.unrouted)
	}
}

// settle returns once the picks of these targets see their newest configs. One
// that is gone has none to see.
func (ts *targets) settle(ctx context.Context, names []string) error {
	for _, offered := range ts.offers(names) {
		if err := offered.Wait(ctx); err != nil && !errors.Is(err, lb.ErrClosed) {
			return err
		}
	}
	return nil
}

// offers are the newest configs of targets, on their way.
func (ts *targets) offers(names []string) []lb.Offered {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	h := ts.current.Load()
	out := make([]lb.Offered, 0, len(names))
	for _, name := range names {
		if t := h.named(name); t != nil {
			out = append(out, t.offered)
		}
	}
	return out
}

// close closes every target. None comes after.
func (ts *targets) close() {
	ts.mu.Lock()
	var all ended
	if !ts.closed {
		ts.closed = true
		all = ended{of: ts, targets: ts.current.Load().all()}
		for _, t := range all.targets {
			ts.letGo(t)
		}
		ts.closing.Add(len(all.targets))
	}
	ts.mu.Unlock()
	all.close()
	ts.closing.Wait()
}
