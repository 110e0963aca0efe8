package proposal

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Kind is a kind of losses.
type Kind int

// The kinds of losses.
const (
	// Emptied: a cluster that has usable endpoints would have none.
	Emptied Kind = iota
	// Empty: endpoints are set of which none is usable, by the resource itself or because of overlays.
	Empty
	// Unsecured: the connections of a cluster would lose TLS.
	Unsecured
	// Removed: a cluster that has usable endpoints, and callers, would not exist.
	Removed
)

// Loss is what a proposal would take away.
type Loss struct {
	Kind Kind
	// Cluster is the cluster that would lose it.
	Cluster string
	// Reason says what is lost.
	Reason string
	// Overlay takes endpoints of the cluster out of use that would be usable without it; nil for none.
	Overlay *resource.Overlay

	needs []resource.Key // that the cluster depends on
}

// Guard finds the losses of clusters.
type Guard struct {
	// TLS is true if the daemon's connect mode is tls: connections of a cluster without configuration are
	// secured, by the system's roots.
	TLS bool
	// Picked reports whether a cluster has had picks lately. If it is nil, clusters can be removed.
	Picked func(cluster string) bool
}

// Losses returns the losses of the clusters in an outcome, by cluster: one of each kind.
func (g Guard) Losses(o *Outcome) []Loss {
	var out []Loss
	for i := range o.Proposal.Updates {
		u := &o.Proposal.Updates[i]
		if u.Assignment != nil && u.Assignment.Usable() == 0 {
			out = append(out, Loss{Kind: Empty, Cluster: u.Key.Name, Reason: fmt.Sprintf("the assignment of %q has no usable endpoint", u.Key.Name)})
		}
	}
	set := o.assignments()
	for t := range o.transitions {
		if l, ok := emptied(&t, set); ok {
			out = append(out, l)
		}
		if n := t.was.usable(); n > 0 && t.is.config == nil && g.Picked != nil && g.Picked(t.cluster) {
			reason := fmt.Sprintf("removes cluster %q, which has %d usable endpoints and had picks in the last minutes", t.cluster, n)
			out = append(out, Loss{Kind: Removed, Cluster: t.cluster, Reason: reason, needs: t.needs})
		}
		if why := g.unsecured(&t); why != "" {
			out = append(out, Loss{Kind: Unsecured, Cluster: t.cluster, Reason: why, needs: t.needs})
		}
	}
	slices.SortStableFunc(out, func(a, b Loss) int { return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Kind, b.Kind)) })
	return slices.CompactFunc(out, func(a, b Loss) bool { return a.Cluster == b.Cluster && a.Kind == b.Kind })
}

// emptied returns the loss of a cluster that has no usable endpoint afterwards; ok is false if that is no loss:
// there was none before, and its endpoints are not among those that the proposal sets.
func emptied(t *transition, set map[string]*resource.Assignment) (l Loss, ok bool) {
	if !t.is.none() {
		return l, false
	}
	l = Loss{Kind: Emptied, Cluster: t.cluster, Overlay: masking(t.is), needs: t.needs}
	if n := t.was.usable(); n > 0 {
		l.Reason = fmt.Sprintf("cluster %q would have no usable endpoints; it has %d", t.cluster, n)
		return l, true
	}
	c := t.is.config.Cluster
	if c == nil || c.Type != resource.ClusterEDS {
		return l, false
	}
	a := set[c.AssignmentName()]
	if a == nil {
		return l, false
	}
	l.Kind, l.Reason = Empty, fmt.Sprintf("the assignment of %q has %d usable endpoints", a.Name, a.Usable())
	return l, true
}

// masking returns the newest overlay of a cluster that would have usable endpoints without overlays; nil if there
// is none.
func masking(s side) *resource.Overlay {
	for _, leaf := range s.leaves {
		if _, a := leaf.Source(); leaf.Overlaid != nil && a != nil && a.Usable() > 0 {
			return leaf.Overlaid.Overlays[len(leaf.Overlaid.Overlays)-1]
		}
	}
	return nil
}

// Masked says which overlay causes the loss of a cluster; empty if none does.
func (l *Loss) Masked() string {
	if l.Overlay == nil {
		return ""
	}
	return "its overlays take all of them out of use: " + overlay.Describe(l.Overlay)
}

// plainCluster is how an author requests connections without TLS.
const plainCluster = "for connections without TLS give it a Cluster with metadata: {filter_metadata: {lbd: {connect: tcp}}}"

// unsecured returns why a proposal would take TLS from the connections of a cluster that it leaves with
// endpoints, or an empty text if it would not. Only lbd.connect may end TLS: not the removal of the Cluster, which
// leaves the defaults, or of its transport_socket.
//
// An invalid Cluster takes no TLS away: its cluster has no connections at all.
func (g Guard) unsecured(t *transition) string {
	if t.was.config == nil || t.is.config == nil {
		return ""
	}
	was, is := t.was.config.Cluster, t.is.config.Cluster
	if was == nil || was.Security == nil && (was.Connect != resource.ConnectTLS || g.TLS) || is == nil || is.Type == resource.ClusterAggregate {
		return ""
	}
	lost := "the new Cluster has no transport_socket"
	switch {
	case t.is.config.ClusterFrom.Source == resource.SourceDefault:
		if lost = "the Cluster is removed"; t.is.config.Pending { // it may come from a management server
			return ""
		}
	case is.Security != nil || is.Connect != resource.ConnectDefault:
		return ""
	}
	return fmt.Sprintf("cluster %s: the change disables TLS: %s; %s", t.cluster, lost, plainCluster)
}

// Check returns the clusters that valid resources leave without a usable endpoint. A push
// of them would be refused.
func Check(items []resource.Item) []decode.Problem {
	byKey := make(map[resource.Key]resource.Item, len(items))
	for _, i := range items {
		byKey[i.Key] = i
	}
	var problems []decode.Problem
	for _, i := range items {
		reason := ""
		switch {
		case i.Assignment != nil && i.Assignment.Usable() == 0:
			reason = "has no usable endpoints"
		case i.Cluster != nil && i.Cluster.Type == resource.ClusterEDS && i.Cluster.AssignmentName() != i.Cluster.Name:
			key := resource.Key{Type: resource.TypeAssignment, Name: i.Cluster.AssignmentName()}
			if a, ok := byKey[key]; ok && a.Assignment.Usable() == 0 {
				reason = fmt.Sprintf("takes its endpoints from %s, which has no usable endpoint", key)
			}
		}
		if reason != "" {
			problems = append(problems, decode.Problem{Resource: i.Key.String(), Field: i.Field, Reason: reason})
		}
	}
	return problems
}
