package ledger

import (
	"slices"

	"github.com/lbd-dev/lbd/xds/overlay"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Scope is the set of clusters and targets that a caller may see. A nil *Scope has all of
// them. An empty name names nothing: it is in every scope.
type Scope struct{ maySee func(name string) bool }

// NewScope returns the scope of the names for which maySee returns true. It gets the names of
// targets as [TargetKey] returns them.
func NewScope(maySee func(name string) bool) *Scope { return &Scope{maySee: maySee} }

// All reports whether the scope has every name.
func (s *Scope) All() bool { return s == nil }

// Cluster reports whether the scope has a cluster.
func (s *Scope) Cluster(name string) bool { return s == nil || name == "" || s.maySee(name) }

// Target reports whether the scope has a target: an xds target, or the cluster of a full name
// "cluster:NAME".
func (s *Scope) Target(name string) bool {
	if s == nil || name == "" {
		return true
	}
	if cluster, ok := resolver.Cluster(name); ok {
		return s.maySee(cluster)
	}
	return s.maySee(TargetKey(name))
}

// Targets returns those targets of a list that the scope has. It returns the list itself if it
// has all of them.
func (s *Scope) Targets(names []string) []string {
	hidden := func(name string) bool { return !s.Target(name) }
	if !slices.ContainsFunc(names, hidden) {
		return names
	}
	return slices.DeleteFunc(slices.Clone(names), hidden)
}

// Resource reports whether the scope has the name of a resource: the target of a Listener, the
// cluster of any other type. The name of an assignment may be an EDS service name.
func (s *Scope) Resource(key resource.Key) bool {
	if key.Type == resource.TypeListener {
		return s.Target(TargetKey(key.Name))
	}
	if key.Type == overlay.Type {
		return s.Cluster(overlay.ClusterOf(key))
	}
	return s.Cluster(key.Name)
}
