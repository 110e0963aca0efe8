package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/wake"
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
	Changed wake.All

	newest  atomic.Pointer[View]
	offered atomic.Pointer[lb.Offered] // the newest config, on its way to the tree; nil once picks use it, and while warming
	used    atomic.Bool
	ambient atomic.Pointer[Ambient]
}

// View is a target as one config has it. It is never changed, the counts in it
// aside.
type View struct {
	Config *resource.Config
	// Only is the cluster of a cluster: target; nil for an xds target.
	Only     *Cluster
	Clusters few.Map[string, *Cluster] // by name
}

// View returns the target as its newest config has it; nil before the first.
func (t *Target) View() *View { return t.newest.Load() }

// Sorted returns a view's clusters by name.
func (v *View) Sorted() []*Cluster {
	if v.Only != nil {
		return []*Cluster{v.Only}
	}
	out := make([]*Cluster, 0, v.Clusters.Len())
	for _, c := range v.Clusters.All() {
		out = append(out, c)
	}
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
	if c := v.Clusters.Get(name); c != nil {
		return c
	}
	return &Cluster{
		Record: &Record{Target: t, Name: name, Counts: new(Counts), Totals: newTotals(name)},
		Config: &resource.Config{Clusters: few.Of(map[string]*resource.ClusterConfig{name: {Err: errGone}})},
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
	for cluster, c := range t.View().Clusters.All() {
		c.ambient.Store(newAmbient(slices.Concat(is.Routing, is.Clusters[cluster])))
	}
	t.Changed.Notify()
}

// Ambient are the resources of a target, or of one cluster of it, that are in use in
// spite of an error (gRFC A88). They are never changed. nil is none.
type Ambient struct {
	errors []resolver.AmbientError
	note   func() string
}

func newAmbient(errors []resolver.AmbientError) *Ambient {
	if len(errors) == 0 {
		return nil
	}
	return &Ambient{errors: errors, note: sync.OnceValue(func() string { return resolutionNote(errors) })}
}

// Errors returns the errors. They are not to be changed.
func (a *Ambient) Errors() []resolver.AmbientError {
	if a == nil {
		return nil
	}
	return a.errors
}

// AppendNote returns the detail of a failed pick with the resolution note of gRFC
// A88, if there is one.
func (a *Ambient) AppendNote(detail string) string {
	if a == nil {
		return detail
	}
	return detail + a.note()
}

// Has reports whether a resource is among them.
func (a *Ambient) Has(key resource.Key) bool {
	return a != nil && slices.ContainsFunc(a.errors, func(e resolver.AmbientError) bool { return e.Key == key })
}

// maxNoted is how many resources, and how many different errors, a resolution note
// names.
const maxNoted = 3

// resolutionNote lists errors by their texts, each with the resources that it
// concerns.
func resolutionNote(errors []resolver.AmbientError) string {
	resources := make(map[string][]string)
	var texts []string
	for _, e := range errors {
		why := e.Err.Error()
		if resources[why] == nil {
			texts = append(texts, why)
		}
		resources[why] = append(resources[why], e.Key.String())
	}
	notes := make([]string, 0, maxNoted+1)
	for i, why := range texts {
		if i == maxNoted {
			notes = append(notes, fmt.Sprintf("and %d more errors", len(texts)-i))
			break
		}
		names, more := resources[why], ""
		if n := len(names); n > maxNoted {
			names, more = names[:maxNoted], fmt.Sprintf(" and %d more", n-maxNoted)
		}
		notes = append(notes, fmt.Sprintf("using the cached %s%s: %s", strings.Join(names, ", "), more, why))
	}
	return " (resolution note: " + strings.Join(notes, "; ") + ")"
}
