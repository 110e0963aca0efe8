package resolver

import (
	"cmp"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// typeHost is the type of a DNS name in the key of a need.
const typeHost resource.Type = "host"

// need is who needs one resource, or DNS name. It is there as long as somebody
// does.
type need struct {
	roots   map[*root]struct{}
	targets map[*target]struct{} // of Listeners and routes
}

// needed returns the need of a key, for somebody to be noted in.
func (r *Resolver) needed(key resource.Key) *need {
	n := r.needs[key]
	if n == nil {
		n = &need{}
		r.needs[key] = n
		if key.Type == typeHost {
			r.hostNames[key.Name] = struct{}{}
		}
		r.reconsider(key)
	}
	return n
}

// unneeded forgets a need that nobody has any more.
func (r *Resolver) unneeded(key resource.Key, n *need) {
	if len(n.roots) > 0 || len(n.targets) > 0 {
		return
	}
	delete(r.needs, key)
	switch key.Type {
	case typeHost:
		delete(r.hostNames, key.Name)
	case resource.TypeCluster:
		delete(r.parts, key.Name)
	}
	r.reconsider(key)
}

// asked is what a management server is asked for.
type asked struct {
	told map[resource.Key]struct{} // as Wanted has said
	// open are those of which Wanted may have something else to say.
	open map[resource.Key]struct{}
}

func (r *Resolver) reconsider(key resource.Key) {
	if r.options.Server && key.Type != typeHost {
		r.asked.open[key] = struct{}{}
	}
}

// asks reports whether a management server may speak of a resource: it is
// wanted, or was when Wanted was called last.
func (r *Resolver) asks(key resource.Key) bool {
	_, told := r.asked.told[key]
	return told || r.wants(key)
}

// wants reports whether a management server is to be asked for a resource:
// somebody needs it, and neither push nor file have it.
func (r *Resolver) wants(key resource.Key) bool { return r.needs[key] != nil && !r.covered(key) }

// Wanted tells what a management server is to be asked for that it was not, and
// what it is not to be asked for any more, since the last call; each in the order
// of types and names. What it said of the latter is forgotten: it is to say so
// again when it is asked again. Without Options.Server there is nothing to ask.
func (r *Resolver) Wanted() (add, drop []resource.Key) {
	for key := range r.asked.open {
		_, told := r.asked.told[key]
		switch wants := r.wants(key); {
		case wants && !told:
			r.asked.told[key] = struct{}{}
			add = append(add, key)
		case told && !wants:
			delete(r.asked.told, key)
			drop = append(drop, key)
			r.take(resource.SourceADS, Update{Item: resource.Item{Key: key}})
		}
	}
	r.asked.open = make(map[resource.Key]struct{}) // a cleared map stays as large as it was
	slices.SortFunc(add, compareKeys)
	slices.SortFunc(drop, compareKeys)
	return add, drop
}

func compareKeys(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// Spare are the resources that a source has and no target needs, in no order.
func (r *Resolver) Spare(s resource.Source) []resource.Key {
	var keys []resource.Key
	keys = spare(r, keys, resource.TypeListener, r.listeners, s)
	keys = spare(r, keys, resource.TypeRoutes, r.routes, s)
	keys = spare(r, keys, resource.TypeCluster, r.clusters, s)
	return spare(r, keys, resource.TypeAssignment, r.assignments, s)
}

func spare[V any](r *Resolver, keys []resource.Key, of resource.Type, l layers[V], s resource.Source) []resource.Key {
	for name, at := range l {
		if key := (resource.Key{Type: of, Name: name}); at[s] != nil && !r.Needs(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Needs reports whether a target needs a resource, be it one that push or file
// have.
func (r *Resolver) Needs(key resource.Key) bool { return r.needs[key] != nil }
