package resolver

import (
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// AmbientError is why the management server's last good version of a resource is
// in use: the server deleted the resource, reports an error for it, sent an invalid
// version, or cannot be reached (gRFC A88).
type AmbientError struct {
	Key resource.Key
	Err error
	// Since is when the error was first reported with its present text.
	Since time.Time
}

// AmbientErrors are those of a target. Lists are sorted by type and name.
type AmbientErrors struct {
	// All has each resource of the target once.
	All []AmbientError
	// Routing are those of the Listener and the RouteConfiguration.
	Routing []AmbientError
	// Clusters are those of the Clusters and ClusterLoadAssignments that each
	// cluster of the target depends on. A cluster without any is absent.
	Clusters map[string][]AmbientError
}

// failing has the resources whose last update from a management server was an error.
type failing struct {
	keys    map[string]map[resource.Key]struct{} // by target
	changed map[string]struct{}                  // targets since the last AmbientChanges
}

// AmbientChanges returns the targets whose AmbientErrors may have changed since the last
// call.
func (r *Resolver) AmbientChanges() []string {
	changed := slices.Collect(maps.Keys(r.failing.changed))
	r.failing.changed = make(map[string]struct{}) // a cleared map stays as large as it was
	return changed
}

// AmbientErrors returns the errors of a target's resources in use. Resources of a push or a
// file have none.
func (r *Resolver) AmbientErrors(target string) AmbientErrors {
	var out AmbientErrors
	t := r.targets[target]
	for _, key := range slices.SortedFunc(maps.Keys(r.failing.keys[target]), compareKeys) {
		n := r.needs[key].Get(t)
		top := r.layers.top(target, key)
		if n == nil || top.Err == nil || !top.good() {
			continue
		}
		e := AmbientError{Key: key, Err: top.Err, Since: top.errSince}
		out.All = append(out.All, e)
		if n.routed {
			out.Routing = append(out.Routing, e)
		}
		for x := range n.roots.All() {
			if out.Clusters == nil {
				out.Clusters = make(map[string][]AmbientError)
			}
			out.Clusters[x.cluster] = append(out.Clusters[x.cluster], e)
		}
	}
	return out
}

// recordError updates failing after an update of a management server.
func (r *Resolver) recordError(target string, key resource.Key, fails bool) {
	keys := r.failing.keys[target]
	_, failed := keys[key]
	switch {
	case fails:
		if keys == nil {
			keys = make(map[resource.Key]struct{})
			r.failing.keys[target] = keys
		}
		keys[key] = struct{}{}
	case failed:
		if delete(keys, key); len(keys) == 0 {
			delete(r.failing.keys, target)
		}
	default:
		return
	}
	if r.targets[target] != nil {
		r.failing.changed[target] = struct{}{}
	}
}
