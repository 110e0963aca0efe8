package ledger

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Ledger is every hosted target. Its methods may be called from any goroutine; reading
// takes no lock.
type Ledger struct {
	// Fixed after build.
	options  Options
	counters *policy.Counters
	servers  Servers      // nil without a management server; fixed after Follow
	reports  *loadReports // the same
	warmer   *warmer

	// Rest and RestEnds count for all records and totals without series of their own.
	Rest     Counts
	RestEnds Ends

	current atomic.Pointer[Hosted] // replaced under mu
	closing sync.WaitGroup         // trees that are being closed

	mu     sync.Mutex // guards what follows
	totals map[string]*Totals
	closed bool
	// Records and totals with series of their own.
	recordSeries, totalsSeries int
}

// Options configure a Ledger.
type Options struct {
	// Channel has the options that the channels of all targets share. The ledger sets
	// Counters, Report and Generation.
	Channel lb.Options
	// Report takes the reports of a target's channel; see [lb.Options].
	Report func(*Target, []policy.Event)
	// MaxSeries is how many records, and how many totals, have series of their own;
	// 0 is MaxClustersWithSeries.
	MaxSeries int
	// Turns is the budget of bulk work, such as building trees in the background; nil for no limit.
	Turns *overload.Turns
	// Draining ends when the daemon begins to shut down.
	Draining context.Context
	// Fleet has the limits of clusters with a limit of the fleet. It is nil in a daemon that belongs to
	// none: their limits are of this daemon then.
	Fleet Fleet
}

// Fleet shares limits with other daemons. Its methods do not wait.
type Fleet interface {
	// Share makes the limit of counters one of the fleet, until as many calls of Unshare. The last
	// limit applies.
	Share(c *policy.ClusterCounters, limit uint32)
	Unshare(c *policy.ClusterCounters)
}

// New returns a ledger without targets.
func New(o Options) *Ledger {
	o.MaxSeries = cmp.Or(o.MaxSeries, MaxClustersWithSeries)
	l := &Ledger{options: o, counters: policy.NewCounters(), warmer: &warmer{turns: o.Turns}, totals: make(map[string]*Totals)}
	l.warmer.ctx, l.warmer.close = context.WithCancel(context.Background())
	if o.Fleet != nil {
		l.counters.JoinFleet()
	}
	l.current.Store(&Hosted{clusters: map[string]*Target{}, xds: map[string]*Target{}})
	return l
}

// Follow sets the management servers and the load reports to them. It is called at most
// once, before the first target.
func (l *Ledger) Follow(servers Servers, reports LoadReports) {
	l.servers, l.reports = servers, &loadReports{servers: servers, reports: reports, wanted: make(map[resource.ServiceKey]*subscription)}
}

// Hosted returns the targets as they are now.
func (l *Ledger) Hosted() *Hosted { return l.current.Load() }

// yieldChanges is the number of changes after which other goroutines may run. Each change may start
// the goroutine of a tree; hundreds of them in the queue of a processor would delay picks by tens of
// milliseconds.
const yieldChanges = 16

// Apply adds and updates targets, and returns those that it removed, which the caller
// must close when it holds no lock. It does not wait for the trees. Of more than
// [MaxBuiltAtOnce] changes, the new targets are warming afterwards.
func (l *Ledger) Apply(changes []resolver.TargetConfig) (gone Ended) {
	l.mu.Lock()
	defer l.mu.Unlock()
	gone = Ended{of: l}
	if l.closed || len(changes) == 0 {
		return gone
	}
	next := edit{Hosted: *l.Hosted()}
	var warming []*Target
	for i, c := range changes {
		if i%yieldChanges == yieldChanges-1 {
			runtime.Gosched()
		}
		t := next.Named(c.Target)
		if c.Config == nil {
			if t != nil {
				next.set(t.Name, nil)
				l.releaseTarget(t)
				gone.targets = append(gone.targets, t)
			}
			continue
		}
		added := t == nil
		if added {
			t = l.build(c.Target)
		}
		l.update(t, c.Config)
		if !l.offer(t, c.Config, len(changes) <= MaxBuiltAtOnce) && added {
			warming = append(warming, t)
		}
		next.set(t.Name, t)
	}
	l.current.Store(next.end())
	l.warmer.add(warming)
	l.closing.Add(len(gone.targets))
	return gone
}

// build returns a target without config. It is called under l.mu, like the functions
// below.
func (l *Ledger) build(name string) *Target {
	t := &Target{Name: name}
	if _, ok := resolver.Cluster(name); !ok {
		t.Label, t.Unrouted = name, l.addRecord(t, "")
	}
	o := l.options.Channel
	o.Counters, o.Generation = l.counters, time.Now().UnixMilli()
	o.Report = func(events []policy.Event) {
		l.options.Report(t, events)
		t.Changed.Notify()
	}
	t.Channel = lb.NewChannel(o)
	return t
}

// offer hands the tree of a target its newest config. It reports false if the target is
// warming, which is only possible unless its tree must be built at once.
func (l *Ledger) offer(t *Target, config *resource.Config, atOnce bool) bool {
	if !atOnce {
		if o, deferred := t.Channel.Defer(config); !deferred {
			t.offered.Store(&o)
			return true
		}
		return false
	}
	o := t.Channel.Offer(config)
	t.offered.Store(&o)
	return true
}

// update gives a target a config, before its tree has it.
func (l *Ledger) update(t *Target, config *resource.Config) {
	old := t.View()
	if old == nil {
		old = &View{}
	}
	next := &View{Config: config}
	roots := config.Roots
	if config.Err != nil || config.Pending {
		roots = nil
	}
	for _, cluster := range roots {
		if next.Clusters.Get(cluster) == nil {
			next.Clusters.Set(cluster, l.join(t, old.Clusters.Get(cluster), cluster, config))
		}
	}
	if t.Label == "" {
		next.Only = next.Clusters.Get(roots[0])
	}
	for cluster, c := range old.Clusters.All() {
		if next.Clusters.Get(cluster) == nil {
			l.releaseCluster(c)
		}
	}
	t.newest.Store(next)
}

// join returns a cluster of a target in a newer config. was is the cluster before, or nil.
func (l *Ledger) join(t *Target, was *Cluster, cluster string, config *resource.Config) *Cluster {
	if was == nil {
		was = &Cluster{Record: l.addRecord(t, cluster)}
	}
	c := &Cluster{Record: was.Record, Config: config, Version: was.Version, Places: was.Places, Leaves: was.Leaves}
	if cc := c.ClusterConfig(); cc.Cluster != nil {
		c.MaxLeaseShare = cc.Cluster.MaxLeaseShare
	}
	c.SetStale(l.isStale(c))
	if was.isSameIn(config) {
		return c
	}
	c.Version++
	if c.ClusterConfig().Err == nil {
		c.Leaves = l.acquireLeaves(t, cluster, config)
		defer l.releaseLeaves(was.Leaves) // after the new ones are held: most are the same
	}
	var left places
	c.Places, left = was.Places.update(c.Localities(), c.newPlace)
	c.closePlaces(&left)
	return c
}

// acquireLeaves returns the leaves of a cluster of a target that can be used.
func (l *Ledger) acquireLeaves(t *Target, cluster string, config *resource.Config) (leaves []Leaf) {
	for _, cc := range config.Leaves(cluster) {
		if cc.Err != nil {
			continue // it counts nothing
		}
		leaf := l.acquireLeaf(cc)
		l.reports.follow(t.Name, leaf)
		leaves = append(leaves, leaf)
	}
	return leaves
}

func (l *Ledger) releaseCluster(c *Cluster) {
	c.closePlaces(&c.Places)
	l.removeRecord(c.Record)
	l.releaseLeaves(c.Leaves)
}

func (l *Ledger) releaseTarget(t *Target) {
	for _, c := range t.View().Clusters.All() {
		l.releaseCluster(c)
	}
	if t.Unrouted != nil {
		l.removeRecord(t.Unrouted)
	}
}

// Ended holds removed targets whose trees are still open.
type Ended struct {
	of      *Ledger
	targets []*Target
}

// Close closes the trees. It must be called once, without a lock: the last reports of the
// trees may need it.
func (e Ended) Close() {
	for _, t := range e.targets {
		t.Channel.Close()
		e.of.closing.Done()
	}
}

// Settle returns once the picks of these targets see their newest configs. It waits for
// no target that is not hosted, or is warming: a pick builds its tree of the newest config.
// Its error is the cause of ctx's end, or a tree's.
func (l *Ledger) Settle(ctx context.Context, names []string) error {
	h := l.Hosted()
	for _, name := range names {
		t := h.Named(name)
		if t == nil {
			continue
		}
		o := t.offered.Load()
		if o == nil {
			continue
		}
		if err := o.Wait(ctx); err != nil && !errors.Is(err, lb.ErrClosed) {
			return err
		}
		t.offered.CompareAndSwap(o, nil)
	}
	return nil
}

// Settled reports whether Settle would return at once.
func (l *Ledger) Settled(names iter.Seq[string]) bool {
	h := l.Hosted()
	for name := range names {
		if t := h.Named(name); t != nil {
			if o := t.offered.Load(); o != nil && !o.Done() {
				return false
			}
		}
	}
	return true
}

// Close closes every target. Apply adds none after it.
func (l *Ledger) Close() {
	l.mu.Lock()
	var all Ended
	if !l.closed {
		l.closed = true
		all = Ended{of: l, targets: slices.Collect(l.Hosted().All())}
		for _, t := range all.targets {
			l.releaseTarget(t)
		}
		l.closing.Add(len(all.targets))
	}
	l.mu.Unlock()
	l.warmer.close()
	l.warmer.done.Wait() // without a lock
	all.Close()
	l.closing.Wait()
}

// addRecord returns a new record. It is called under l.mu, like the functions below.
func (l *Ledger) addRecord(t *Target, cluster string) *Record {
	r := &Record{Target: t, Name: cluster, Counts: new(Counts)}
	if cluster != "" {
		r.Totals = l.acquireTotals(cluster)
	}
	if r.OwnSeries = l.recordSeries < l.options.MaxSeries && cluster != OverflowCluster; r.OwnSeries {
		l.recordSeries++
	} else {
		r.Counts = &l.Rest
	}
	return r
}

func (l *Ledger) removeRecord(r *Record) {
	if r.OwnSeries {
		l.recordSeries--
	}
	if r.Totals != nil {
		l.releaseTotals(r.Totals)
	}
}

// acquireTotals returns the totals of a cluster, for a record or a leaf.
func (l *Ledger) acquireTotals(cluster string) *Totals {
	t := l.totals[cluster]
	if t == nil {
		t = newTotals(cluster)
		t.Leases.last = func() { l.forget(t) }
		if t.OwnSeries = l.totalsSeries < l.options.MaxSeries && cluster != OverflowCluster; t.OwnSeries {
			l.totalsSeries++
		} else {
			t.Ends = &l.RestEnds
		}
		l.totals[cluster] = t
	}
	t.users++
	t.Leases.unused.Store(false)
	return t
}

// Adopt calls f, which counts leases of an earlier process, with what they count in: the cluster, the leases of
// the leaf, and its counters. The cluster and its leaf need not exist: they count once they do. The record has no
// target, and the totals no further use than that of the leases.
func (l *Ledger) Adopt(cluster string, leaf resource.ServiceKey, f func(*Record, *Leases, *policy.ClusterCounters)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	totals, of, counters := l.acquireTotals(cluster), l.acquireTotals(leaf.Cluster), l.counters.Acquire(leaf)
	f(&Record{Name: cluster, Counts: &l.Rest, Totals: totals}, &of.Leases, counters)
	counters.Release()
	l.releaseTotals(of)
	l.releaseTotals(totals)
}

// releaseTotals keeps the totals of a cluster that has leases: they count again if the
// cluster comes back.
func (l *Ledger) releaseTotals(t *Totals) {
	if t.users--; t.users == 0 {
		t.Leases.unused.Store(true) // before removeUnused looks for leases: one of both sees the other
	}
	l.removeUnused(t)
}

// forget removes the totals of a cluster without leases, unless they are in use.
func (l *Ledger) forget(t *Totals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.totals[t.Name] == t {
		l.removeUnused(t)
	}
}

func (l *Ledger) removeUnused(t *Totals) {
	if t.users > 0 || t.Leases.Load() > 0 {
		return
	}
	delete(l.totals, t.Name)
	if t.OwnSeries {
		l.totalsSeries--
	}
}

// acquireLeaf returns the leaf of a cluster; releaseLeaves releases it.
func (l *Ledger) acquireLeaf(cc *resource.ClusterConfig) Leaf {
	leaf := Leaf{ClusterConfig: cc, Totals: l.acquireTotals(cc.Cluster.Name)}
	leaf.Counters = l.counters.Acquire(leaf.Cluster.ServiceKey())
	l.reports.begin(leaf)
	if l.isShared(leaf) {
		l.options.Fleet.Share(leaf.Counters, leaf.Cluster.MaxRequests)
	}
	return leaf
}

func (l *Ledger) releaseLeaves(leaves []Leaf) {
	for _, leaf := range leaves {
		if l.isShared(leaf) {
			l.options.Fleet.Unshare(leaf.Counters)
		}
		l.reports.end(leaf)
		leaf.Counters.Release()
		l.releaseTotals(leaf.Totals)
	}
}

// isShared reports whether the limit of a leaf is one of the fleet.
func (l *Ledger) isShared(leaf Leaf) bool { return l.options.Fleet != nil && leaf.Cluster.FleetLimit }
