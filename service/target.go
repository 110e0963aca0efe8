package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// target is one hosted tree, and the counts of what became of its picks.
type target struct {
	// Fixed after build.
	cluster string
	channel *lb.Channel
	// ownSeries is false for a target beyond MaxClustersWithSeries.
	ownSeries bool

	config  atomic.Pointer[resource.Config]
	offered atomic.Pointer[lb.Offered] // the newest config's

	places atomic.Pointer[places] // the newest config's
	// leaves are those of the newest config that can be used. The target holds
	// their counters: its tree lets go of its own when it fails, and what they
	// count goes on.
	leaves atomic.Pointer[[]leaf]

	*counts
	leases atomic.Int64
}

// counts are what happened to a target. Targets without series of their own
// share one, so that their sums do not fall when one of them goes.
type counts struct {
	picks    tally[result]
	switches tally[policy.SwitchReason]
	connects tally[string]
	losses   tally[string]
	ended    tally[Outcome]
}

// clusterConfig is the cluster's part of the newest config.
func (t *target) clusterConfig() *resource.ClusterConfig {
	return t.config.Load().Clusters[t.cluster]
}

// assignments are those that the cluster comes down to: its own, or its leaves'.
func (t *target) assignments() []*resource.Assignment {
	var out []*resource.Assignment
	for cc := range t.config.Load().Leaves(t.cluster) {
		if cc.Assignment != nil {
			out = append(out, cc.Assignment)
		}
	}
	return out
}

// own returns the leaf that the cluster is itself. An AGGREGATE has none, nor has
// a cluster that cannot be used.
func (t *target) own() (_ leaf, ok bool) {
	for _, l := range *t.leaves.Load() {
		if l.Cluster.Name == t.cluster {
			return l, t.clusterConfig().Err == nil
		}
	}
	return leaf{}, false
}

// follow lets a target take a config, before its tree does. It is called under
// ts.mu.
func (ts *targets) follow(t *target, config *resource.Config) {
	t.config.Store(config)
	counted := t.places.Load().follow(config, t.cluster)
	t.places.Store(&counted)
	if t.clusterConfig().Err != nil {
		return
	}
	var leaves []leaf
	for cc := range config.Leaves(t.cluster) {
		leaves = append(leaves, leaf{cc, ts.hold(cc)})
	}
	ts.release(*t.leaves.Swap(&leaves)) // after the new ones are held: most are the same
}

// end closes a target's tree, and lets go of what the target holds. It is called
// under ts.mu.
func (ts *targets) end(t *target) {
	t.channel.Close()
	ts.release(*t.leaves.Load())
}

// newTarget builds the tree of a cluster, still without config.
func (s *Service) newTarget(cluster string) *target {
	t := &target{cluster: cluster, counts: new(counts)}
	t.places.Store(&places{})
	t.leaves.Store(new([]leaf))
	t.channel = lb.NewChannel(lb.Options{
		Registry:   lb.Policies(),
		Counters:   s.counters,
		Draw:       s.options.Draw,
		Events:     func(e policy.Event) { s.event(t, e) },
		Connectors: s.options.Connectors,
		Generation: time.Now().UnixMilli(),
	})
	return t
}

// targets is every target by its cluster. Reading takes no lock.
type targets struct {
	build     func(cluster string) *target
	counters  *policy.Counters
	maxSeries int                                // how many have series of their own
	rest      counts                             // of all others
	current   atomic.Pointer[map[string]*target] // replaced, never changed

	mu         sync.Mutex // held to replace current; guards the rest
	counted    map[policy.ServiceKey]*leafCounters
	withSeries int
	closed     bool
}

func newTargets(build func(string) *target, counters *policy.Counters) *targets {
	ts := &targets{
		build: build, counters: counters, maxSeries: MaxClustersWithSeries,
		counted: make(map[policy.ServiceKey]*leafCounters),
	}
	ts.current.Store(&map[string]*target{})
	return ts
}

func (ts *targets) get(cluster string) *target { return (*ts.current.Load())[cluster] }

// all returns the targets in the order of their clusters' names.
func (ts *targets) all() []*target {
	m := *ts.current.Load()
	out := make([]*target, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[name])
	}
	return out
}

// apply builds, updates and closes targets. It does not wait for the trees.
func (ts *targets) apply(changes []resolver.Change) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed {
		return
	}
	next := *ts.current.Load()
	cloned := false
	replace := func() map[string]*target {
		if !cloned {
			next, cloned = maps.Clone(next), true
		}
		return next
	}
	var gone []*target
	for _, c := range changes {
		cluster, ok := resolver.Cluster(c.Target)
		if !ok {
			continue
		}
		t := next[cluster]
		if c.Config == nil {
			if t != nil {
				delete(replace(), cluster)
				if t.ownSeries {
					ts.withSeries--
				}
				gone = append(gone, t)
			}
			continue
		}
		if t == nil {
			t = ts.build(cluster)
			if t.ownSeries = ts.withSeries < ts.maxSeries && cluster != OverflowCluster; t.ownSeries {
				ts.withSeries++
			} else {
				t.counts = &ts.rest
			}
			replace()[cluster] = t
		}
		ts.follow(t, c.Config)
		offered := t.channel.Offer(c.Config)
		t.offered.Store(&offered)
	}
	ts.current.Store(&next)
	for _, t := range gone {
		ts.end(t)
	}
}

// settle returns once the picks of these clusters see their newest configs. A
// cluster that is gone has none to see.
func (ts *targets) settle(ctx context.Context, clusters []string) error {
	for _, name := range clusters {
		t := ts.get(name)
		if t == nil {
			continue
		}
		if err := t.offered.Load().Wait(ctx); err != nil && !errors.Is(err, lb.ErrClosed) {
			return err
		}
	}
	return nil
}

// close closes every target. None comes after.
func (ts *targets) close() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed {
		return
	}
	ts.closed = true
	for _, t := range *ts.current.Load() {
		ts.end(t)
	}
}
