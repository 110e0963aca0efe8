package ledger

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/resolver"
)

// Hosted are the targets at one moment. It is never changed.
type Hosted struct {
	clusters map[string]*Target // the cluster: targets, by cluster
	xds      map[string]*Target // the others, by name
	short    map[string]*Target // the same, by TargetKey
	ordered  []*Target          // the same, by name
}

// Named returns the target of a full name, or nil.
func (h *Hosted) Named(name string) *Target {
	if cluster, ok := resolver.Cluster(name); ok {
		return h.clusters[cluster]
	}
	return h.xds[name]
}

// Own returns the target of a cluster alone, or nil.
func (h *Hosted) Own(cluster string) *Target { return h.clusters[cluster] }

// XDS returns the xds targets by name. The list is not to be changed.
func (h *Hosted) XDS() []*Target { return h.ordered }

// All yields the targets in no order.
func (h *Hosted) All() iter.Seq[*Target] {
	return func(yield func(*Target) bool) {
		for _, t := range h.clusters {
			if !yield(t) {
				return
			}
		}
		for _, t := range h.ordered {
			if !yield(t) {
				return
			}
		}
	}
}

// Sorted returns the targets in order: by the names of their clusters, then the xds
// targets by theirs.
func (h *Hosted) Sorted() []*Target {
	out := make([]*Target, 0, len(h.clusters)+len(h.ordered))
	for _, name := range slices.Sorted(maps.Keys(h.clusters)) {
		out = append(out, h.clusters[name])
	}
	return append(out, h.ordered...)
}

// Cluster returns a cluster as it is in its own tree, else in that of the first xds
// target that has it; nil where none has.
func (h *Hosted) Cluster(name string) *Cluster {
	if t := h.clusters[name]; t != nil && t.View().Only.Known() {
		return t.View().Only
	}
	for _, t := range h.ordered {
		if c := t.View().Clusters[name]; c != nil {
			return c
		}
	}
	return nil
}

// Clusters calls f with every cluster that picks can reach, in no order, as [Hosted.Cluster]
// returns it. targets are the labels of the xds targets that have it.
func (h *Hosted) Clusters(f func(c *Cluster, targets []string)) {
	livesIn := make(map[string][]string)
	for _, t := range h.ordered {
		for name := range t.View().Clusters {
			livesIn[name] = append(livesIn[name], t.Label)
		}
	}
	for name, t := range h.clusters {
		if c := t.View().Only; c.Known() {
			f(c, livesIn[name])
			delete(livesIn, name)
		}
	}
	for _, t := range h.ordered {
		for name, c := range t.View().Clusters {
			if targets := livesIn[name]; targets != nil {
				f(c, targets)
				delete(livesIn, name)
			}
		}
	}
}

// LivesIn returns the labels of the xds targets that have the cluster, in order.
func (h *Hosted) LivesIn(cluster string) []string {
	var out []string
	for _, t := range h.ordered {
		if t.View().Clusters[cluster] != nil {
			out = append(out, t.Label)
		}
	}
	return out
}

// edit is a change of what is hosted. It copies only what it changes.
type edit struct {
	now              *Hosted
	clusters, others bool // that were copied
}

func newEdit(h *Hosted) *edit {
	next := *h
	return &edit{now: &next}
}

// place returns the map of a target, as a copy that may be changed, and its key.
func (e *edit) place(name string) (m map[string]*Target, key string) {
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

func cloned(m map[string]*Target) map[string]*Target {
	if m == nil {
		return make(map[string]*Target)
	}
	return maps.Clone(m)
}

func (e *edit) add(t *Target) {
	if e.now.Named(t.Name) == t {
		return
	}
	m, key := e.place(t.Name)
	m[key] = t
	e.order(t)
}

func (e *edit) remove(t *Target) {
	m, key := e.place(t.Name)
	delete(m, key)
	e.order(t)
}

// order lists the xds targets again, if t is one.
func (e *edit) order(t *Target) {
	if t.Label == "" {
		return
	}
	e.now.ordered = slices.SortedFunc(maps.Values(e.now.xds), func(a, b *Target) int { return strings.Compare(a.Name, b.Name) })
	e.now.short = make(map[string]*Target, len(e.now.xds))
	for _, t := range e.now.ordered {
		e.now.short[TargetKey(t.Name)] = t
	}
}

// XDSTarget returns the xds target of a name, as TargetName takes it. It fails with
// UnknownTarget.
func (l *Ledger) XDSTarget(name string) (*Target, error) {
	h := l.Hosted()
	if t := h.xds[name]; t != nil {
		return t, nil
	}
	if t := h.short[TargetKey(name)]; t != nil {
		return t, nil
	}
	return nil, UnknownTarget(name)
}

// Find returns a cluster as it is in an xds target; without a target, in its own tree,
// else in that of the first xds target that has it. It fails with UnknownTarget and
// UnknownCluster.
func (l *Ledger) Find(cluster, target string) (*Cluster, error) {
	if target == "" {
		if c := l.Hosted().Cluster(cluster); c != nil {
			return c, nil
		}
		return nil, UnknownCluster(cluster)
	}
	t, err := l.XDSTarget(target)
	if err != nil {
		return nil, err
	}
	if c := t.View().Clusters[cluster]; c != nil {
		return c, nil
	}
	e := fault.Errorf(fault.UnknownCluster, "no route of %s leads to cluster %q", t.Label, cluster)
	e.Cluster, e.Target = cluster, t.Label
	return nil, e
}

// UnknownCluster returns the error of a request for a cluster that is not known.
func UnknownCluster(name string) *fault.Error {
	err := fault.Errorf(fault.UnknownCluster, "cluster %q not found", name)
	err.Cluster = name
	return err
}

// UnknownTarget returns the error of a request for a target that is not hosted.
func UnknownTarget(name string) *fault.Error {
	err := fault.Errorf(fault.UnknownTarget, "target %q not found: use --target or PUT /v1/targets/NAME, or add its Listener", name)
	err.Target = name
	return err
}

// Gone returns the error of a request whose tree was closed meanwhile. label is the
// target's.
func (l *Ledger) Gone(cluster, label string) *fault.Error {
	var e *fault.Error
	switch {
	case l.options.Draining.Err() != nil:
		e = fault.Errorf(fault.ShuttingDown, "the daemon is shutting down")
	case label != "":
		e = fault.Errorf(fault.UnknownTarget, "target %q is not hosted any more", label)
	default:
		e = fault.Errorf(fault.UnknownCluster, "cluster %q was removed", cluster)
	}
	e.Cluster, e.Target, e.Err = cluster, label, lb.ErrClosed
	return e
}
