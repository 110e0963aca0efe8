package ledger

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Target is one hosted tree: of one cluster, or of an xds target, whose routes
// choose among several.
type Target struct {
	// Fixed after build.
	Name    string // "cluster:orders", or "xds:///orders"
	Label   string // what metrics, events and answers call it: nothing for a cluster: target
	Channel *lb.Channel
	// Unrouted counts the picks for which no cluster was chosen; nil for a cluster:
	// target.
	Unrouted *Record

	// Changed is notified after each batch of the channel, and when a cluster becomes
	// stale or fresh, or gets other ambient errors.
	Changed lb.Signal

	newest  atomic.Pointer[View]
	offered atomic.Pointer[lb.Offered] // the newest config, on its way to the tree
	used    atomic.Bool
	ambient atomic.Pointer[Ambient]
}

// View is a target as one config has it. It is never changed, the counts in it
// aside.
type View struct {
	Config *resource.Config
	// Only is the cluster of a cluster: target; nil for an xds target.
	Only     *Cluster
	Clusters map[string]*Cluster // by name
}

// View returns the target as its newest config has it; nil before the first.
func (t *Target) View() *View { return t.newest.Load() }

// Sorted returns a view's clusters by name.
func (v *View) Sorted() []*Cluster {
	if v.Only != nil {
		return []*Cluster{v.Only}
	}
	out := slices.Collect(maps.Values(v.Clusters))
	slices.SortFunc(out, func(a, b *Cluster) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Cluster returns a cluster as the newest config has it. Of one that has left
// the target, by a pick that was made before, nothing is counted any more.
func (t *Target) Cluster(name string) *Cluster {
	v := t.newest.Load()
	if v.Only != nil { // apart from what is below, so that picks have it inlined
		return v.Only
	}
	return t.chosen(v, name)
}

// chosen is Cluster for an xds target.
func (t *Target) chosen(v *View, name string) *Cluster {
	if c := v.Clusters[name]; c != nil {
		return c
	}
	return &Cluster{
		Record: &Record{Target: t, Name: name, Counts: new(Counts), Totals: newTotals(name)},
		Config: &resource.Config{Clusters: map[string]*resource.ClusterConfig{name: {Err: errGone}}},
	}
}

var errGone = errors.New("the cluster has left the target")

// Record returns where a pick counts, whether or not a cluster was chosen for it.
func (t *Target) Record(cluster string) *Record {
	if cluster == "" {
		return t.Unrouted
	}
	return t.Cluster(cluster).Record
}

// MarkUsed notes a pick, for TakeUsed.
func (t *Target) MarkUsed() {
	if !t.used.Load() { // a store by every pick would cost its cache line
		t.used.Store(true)
	}
}

// TakeUsed reports whether there was a pick since the last call.
func (t *Target) TakeUsed() bool { return t.used.Swap(false) }

// Ambient returns the target's resources that are in use in spite of an error.
func (t *Target) Ambient() *Ambient { return t.ambient.Load() }

// SetAmbient replaces the ambient errors of a target and of its clusters. It must not be
// called for one target twice at once.
func (t *Target) SetAmbient(is resolver.AmbientErrors) {
	if len(is.All) == 0 && t.ambient.Load() == nil {
		return // as nearly always
	}
	t.ambient.Store(newAmbient(is.All))
	for cluster, c := range t.View().Clusters {
		c.ambient.Store(newAmbient(slices.Concat(is.Routing, is.Clusters[cluster])))
	}
	t.Changed.Notify()
}
