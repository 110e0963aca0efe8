package service

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// target is one hosted tree: of one cluster, or of an xds target, whose routes
// choose among several.
type target struct {
	// Fixed after build.
	name    string // "cluster:orders", or "xds:///orders"
	label   string // what metrics, events and answers call it: nothing for a cluster: target
	channel *lb.Channel
	log     *slog.Logger
	// unrouted counts the picks for which no cluster was chosen.
	unrouted *account

	newest atomic.Pointer[view]
	// used is, for a cluster: target, whether it was picked from since the last
	// sweep.
	used atomic.Bool
	// ambient has the resources that are in use in spite of an error; nil where
	// there are none.
	ambient atomic.Pointer[ambientErrors]

	offered lb.Offered // the newest config; guarded by the targets' mu
}

// view is a target as one config has it. It is never changed, the counts in it
// aside.
type view struct {
	config *resource.Config
	// only is the member of a cluster: target; nil for an xds target.
	only    *member
	members map[string]*member // by cluster
}

// member is a cluster that the picks of a target can choose, as one config has
// it.
type member struct {
	*account

	config *resource.Config // the whole target's
	places places
	// leaves are those of the newest config that can be used. The member holds
	// their counters: the tree lets go of its own when the cluster fails, and
	// what they count goes on.
	leaves []leaf
}

// account is what happens to one cluster in one target, for as long as the
// target has the cluster.
type account struct {
	// Fixed after build.
	target  *target
	cluster string // empty for a target's unrouted picks
	// ownSeries is false for an account beyond MaxClustersWithSeries. It has its
	// counts together with all other such.
	ownSeries bool
	*counts

	shared *shared // what the cluster's accounts have in common; nil for unrouted picks

	stale atomic.Bool // whether what serves the cluster may be out of date
	// ambient has the resources of the cluster that are in use in spite of an error;
	// nil where there are none.
	ambient atomic.Pointer[ambientErrors]

	recorded recorded // the recorder's only
}

// counts are what metrics tell of a cluster for each target.
type counts struct {
	picks    tally[result]
	switches tally[policy.SwitchReason]
	connects tally[string]
	losses   tally[string]
}

// member returns the cluster as the newest config has it. Of one that has left
// the target, by a pick that was made before, nothing is counted any more.
func (t *target) member(cluster string) *member {
	v := t.newest.Load()
	if v.only != nil { // apart from what is below, so that picks have it inlined
		return v.only
	}
	return t.chosen(v, cluster)
}

// chosen is member for an xds target.
func (t *target) chosen(v *view, cluster string) *member {
	if m := v.members[cluster]; m != nil {
		return m
	}
	return &member{
		account: &account{target: t, cluster: cluster, counts: new(counts), shared: newShared(cluster)},
		config:  &resource.Config{Clusters: map[string]*resource.ClusterConfig{cluster: {Err: errGone}}},
	}
}

var errGone = errors.New("the cluster has left the target")

// clusterConfig is the cluster's own part of the config.
func (m *member) clusterConfig() *resource.ClusterConfig { return m.config.Clusters[m.cluster] }

// accountOf is where a pick counts, be it that a cluster was chosen for it or
// not.
func (t *target) accountOf(cluster string) *account {
	if cluster == "" {
		return t.unrouted
	}
	return t.member(cluster).account
}

// own returns the leaf that the cluster is itself. An AGGREGATE has none, nor has
// a cluster that cannot be used.
func (m *member) own() (_ leaf, ok bool) {
	for _, l := range m.leaves {
		if l.Cluster.Name == m.cluster {
			return l, m.clusterConfig().Err == nil
		}
	}
	return leaf{}, false
}

// usable counts the endpoints that picks may reach now.
func (m *member) usable() int {
	n := 0
	for _, cc := range m.config.Leaves(m.cluster) {
		if cc.Assignment != nil {
			n += cc.Assignment.Usable()
		}
	}
	return n
}

// newTarget builds a tree, still without config.
func (s *Service) newTarget(name string) *target {
	t := &target{name: name, log: s.options.Logger}
	if _, ok := resolver.Cluster(name); !ok {
		t.label, t.log = name, t.log.With("target", name)
	}
	t.channel = lb.NewChannel(lb.Options{
		Registry:   lb.Policies(),
		Counters:   s.counters,
		Draw:       s.options.Draw,
		Events:     func(e policy.Event) { s.event(t, e) },
		Connectors: s.options.Connectors,
		Generation: time.Now().UnixMilli(),
		Overload:   s.options.Overload,
	})
	return t
}
