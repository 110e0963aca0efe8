package resolver

import (
	"maps"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Covered is a resource of a source that is not in use, because a push or a file has it, too.
type Covered struct {
	// InUse is the resource of the push or the file.
	InUse     resource.Item
	InUseFrom resource.Provenance
	// Item is what it covers: the resource of a file, a management server or the cache.
	Item resource.Item
	From resource.Provenance
}

// Covered returns what a push or a file covers of a resource; ok is false if it covers nothing.
func (r *Resolver) Covered(key resource.Key) (c Covered, ok bool) {
	at := r.layers.at(key)
	if at == nil || !r.layers.covered(key) {
		return c, false
	}
	top := at.byHand(0)
	below := r.below(top.source, key)
	if !below.good() {
		return c, false
	}
	return Covered{InUse: top.item(key), InUseFrom: top.from(), Item: below.item(key), From: below.from()}, true
}

// Below returns what a push of a resource covers, or would cover; ok is false if nothing.
func (r *Resolver) Below(key resource.Key) (i resource.Item, from resource.Provenance, ok bool) {
	below := r.below(resource.SourcePush, key)
	if !below.good() {
		return i, from, false
	}
	return below.item(key), below.from(), true
}

// below returns the first result of a resource with a value after that of a push or a file.
func (r *Resolver) below(top resource.Source, key resource.Key) *result {
	if is := r.layers.at(key).byHand(top + 1); is.good() {
		return is
	}
	for t := range r.needs[key].All() {
		if is := r.layers.server(targetResource{t.name, key}); is.good() {
			return is
		}
	}
	return r.layers.get(resource.SourceCache, "", key)
}

func (r *result) item(key resource.Key) resource.Item {
	return resource.Item{Key: key, Value: r.Value}
}

// AllCovered returns the resources of which a push or a file covers something, in order.
func (r *Resolver) AllCovered() []resource.Key {
	return slices.SortedFunc(maps.Keys(r.covered), compareKeys)
}

// updateCovered updates AllCovered after a change of a resource.
func (r *Resolver) updateCovered(key resource.Key) {
	if _, ok := r.Covered(key); ok {
		r.covered[key] = struct{}{}
		return
	}
	delete(r.covered, key)
}

// watched reports whether a covered Cluster or ClusterLoadAssignment is requested all the same: the
// management server has it, or had it in another run of lbd, and lbd reports its changes.
func (r *Resolver) watched(w targetResource) bool {
	if w.key.Type != resource.TypeCluster && w.key.Type != resource.TypeAssignment {
		return false
	}
	return r.layers.server(w).good() || r.layers.get(resource.SourceCache, "", w.key).good()
}
