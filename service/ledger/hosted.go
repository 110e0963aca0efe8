package ledger

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resolver"
)

// Hosted are the targets at one moment. It is never changed.
type Hosted struct {
	clusters map[string]*Target // the cluster: targets, by cluster
	xds      map[string]*Target // the others, by TargetKey
	ordered  []*Target          // the same, by name
}

// Named returns the target of a full name, or nil.
func (h *Hosted) Named(name string) *Target {
	if cluster, ok := resolver.Cluster(name); ok {
		return h.clusters[cluster]
	}
	return h.xds[TargetKey(name)]
}

// Own returns the target of a cluster alone, or nil.
func (h *Hosted) Own(cluster string) *Target { return h.clusters[cluster] }

// XDS returns the xds targets by name. The list is not to be changed.
func (h *Hosted) XDS() []*Target { return h.ordered }

// Len returns the number of clusters in all targets.
func (h *Hosted) Len() int {
	n := len(h.clusters)
	for _, t := range h.ordered {
		n += t.View().Clusters.Len()
	}
	return n
}

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
		if c := t.View().Clusters.Get(name); c != nil {
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
		for name := range t.View().Clusters.All() {
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
		for name, c := range t.View().Clusters.All() {
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
		if t.View().Clusters.Get(cluster) != nil {
			out = append(out, t.Label)
		}
	}
	return out
}

// edit is a change of what is hosted. It copies only what it changes.
type edit struct {
	Hosted
	copiedClusters, copiedXDS bool
}

// set hosts a target under its name; nil removes the target of that name.
func (e *edit) set(name string, t *Target) {
	if e.Named(name) == t {
		return
	}
	m, key, copied := &e.xds, TargetKey(name), &e.copiedXDS
	if cluster, ok := resolver.Cluster(name); ok {
		m, key, copied = &e.clusters, cluster, &e.copiedClusters
	}
	if !*copied {
		*m, *copied = maps.Clone(*m), true
	}
	if (*m)[key] = t; t == nil {
		delete(*m, key)
	}
}

// end returns what is hosted after the change.
func (e *edit) end() *Hosted {
	if e.copiedXDS {
		e.ordered = slices.SortedFunc(maps.Values(e.xds), func(a, b *Target) int { return strings.Compare(a.Name, b.Name) })
	}
	return &e.Hosted
}

// XDSTarget returns the xds target of a name, as TargetName takes it. It fails with
// UnknownTarget.
func (l *Ledger) XDSTarget(name string) (*Target, error) {
	if t := l.Hosted().xds[TargetKey(name)]; t != nil {
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
	if c := t.View().Clusters.Get(cluster); c != nil {
		return c, nil
	}
	return nil, fault.Errorf(fault.UnknownCluster, "no route of %s leads to cluster %q", t.Label, cluster).Of(cluster, t.Label)
}

// UnknownCluster returns the error of a request for a cluster that is not known.
func UnknownCluster(name string) *fault.Error {
	return fault.Errorf(fault.UnknownCluster, "cluster %q not found", name).Of(name, "")
}

// UnknownTarget returns the error of a request for a target that is not hosted.
func UnknownTarget(name string) *fault.Error {
	return fault.Errorf(fault.UnknownTarget, "target %q not found: use --target or PUT /v1/targets/NAME, or add its Listener", name).Of("", name)
}

// Gone returns the error of a request whose tree was closed meanwhile. label is that of the
// target if the request named it.
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
	e.Err = lb.ErrClosed
	return e.Of(cluster, label)
}

// xdsScheme begins the full name of a target that is found by a Listener.
const xdsScheme = "xds:"

// TargetKey is the name of an xds target without what all such names have in
// common: "orders" of "xds:///orders", "xds:orders" and "orders"; "//traffic/orders"
// of "xds://traffic/orders", whose Listener is of the authority "traffic".
func TargetKey(name string) string {
	name = strings.TrimPrefix(name, xdsScheme)
	if after, ok := strings.CutPrefix(name, "///"); ok {
		return after
	}
	return name
}

// TargetName is the full name of an xds target: "xds:///orders" of "orders", as
// gRPC names it. One that has an authority keeps it: "xds://traffic/orders". It
// fails with InvalidArgument where that can be no target.
func TargetName(name string) (string, error) {
	key := TargetKey(name)
	full := xdsScheme + "///" + key
	rest, hasAuthority := strings.CutPrefix(key, "//")
	if hasAuthority {
		full = xdsScheme + key
	}
	authority, of, _ := strings.Cut(rest, "/")
	var wrong string
	switch {
	case key == "":
		wrong = "the name is empty"
	case hasAuthority && (authority == "" || of == ""):
		wrong = "the authority or the name is missing"
	case !hasAuthority && key[0] == '/':
		wrong = "the name begins with a slash"
	case len(full) > decode.MaxNameBytes:
		wrong = fmt.Sprintf("more than %d bytes", decode.MaxNameBytes)
	case !utf8.ValidString(full) || strings.ContainsFunc(full, func(r rune) bool { return !unicode.IsPrint(r) }):
		wrong = "unprintable characters"
	default:
		return full, nil
	}
	return "", fault.Errorf(fault.InvalidArgument, "target %q: must be xds:///NAME or NAME (%s)", name, wrong).Of("", name)
}
