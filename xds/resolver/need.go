package resolver

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// typeHost is the type of a DNS name in the key of a need.
const typeHost resource.Type = "host"

// need is what one target needs a resource, or DNS name, for. It is there as long as
// the target does.
type need struct {
	roots  map[*root]struct{}
	routed bool // it is the target's Listener, or its routes
}

// needed returns a target's need of a key, for its use to be noted.
func (r *Resolver) needed(t *target, key resource.Key) *need {
	all := r.needs[key]
	if all == nil {
		all = make(map[*target]*need)
		r.needs[key] = all
		if key.Type == typeHost {
			r.hostNames[key.Name] = struct{}{}
		}
	}
	n := all[t]
	if n == nil {
		n = &need{}
		all[t] = n
		r.reconsider(t, key)
	}
	return n
}

// unneeded forgets a need that has no use any more.
func (r *Resolver) unneeded(t *target, key resource.Key, n *need) {
	if len(n.roots) > 0 || n.routed {
		return
	}
	if delete(r.needs[key], t); len(r.needs[key]) == 0 {
		delete(r.needs, key)
		if key.Type == typeHost {
			delete(r.hostNames, key.Name)
		}
	}
	if key.Type == resource.TypeCluster {
		delete(t.parts, key.Name)
	}
	r.reconsider(t, key)
}

// wish is a resource that a management server is asked for, for a target.
type wish struct {
	target string
	key    resource.Key
}

// asked is what a management server is asked for.
type asked struct {
	told map[wish]struct{} // as Wanted has said
	// open are those of which Wanted may have something else to say.
	open map[wish]struct{}
}

func (r *Resolver) reconsider(t *target, key resource.Key) {
	if r.options.Server && key.Type != typeHost {
		r.asked.open[wish{t.name, key}] = struct{}{}
	}
}

// asks reports whether a management server may speak of a resource for a target: it
// is wanted, or was when Wanted was called last.
func (r *Resolver) asks(w wish) bool {
	_, told := r.asked.told[w]
	return told || r.wants(w)
}

// wants reports whether a management server is to be asked for a resource: the
// target needs it, and neither push nor file have it.
func (r *Resolver) wants(w wish) bool {
	return r.needs[w.key][r.targets[w.target]] != nil && !r.covered(w.key)
}

// Want is what a management server is to be asked for on behalf of a target, and no
// longer, each in the order of types and names.
type Want struct {
	Target    string
	Add, Drop []resource.Key
}

// Wanted returns what changed since the last call in what a management server is to
// be asked for, by the names of the targets. What it said of a resource that is to
// be dropped is forgotten: it is to say so again when it is asked again. Without
// Options.Server there is nothing to ask.
func (r *Resolver) Wanted() []Want {
	var wants []Want
	open := slices.SortedFunc(maps.Keys(r.asked.open), func(a, b wish) int {
		return cmp.Or(cmp.Compare(a.target, b.target), compareKeys(a.key, b.key))
	})
	for _, w := range open {
		_, told := r.asked.told[w]
		if r.wants(w) == told {
			continue
		}
		if len(wants) == 0 || wants[len(wants)-1].Target != w.target {
			wants = append(wants, Want{Target: w.target})
		}
		of := &wants[len(wants)-1]
		if told {
			delete(r.asked.told, w)
			of.Drop = append(of.Drop, w.key)
			r.take(resource.SourceADS, resource.Update{Target: w.target, Item: resource.Item{Key: w.key}})
		} else {
			r.asked.told[w] = struct{}{}
			of.Add = append(of.Add, w.key)
		}
	}
	r.asked.open = make(map[wish]struct{}) // a cleared map stays as large as it was
	return wants
}

func compareKeys(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// Spare are the resources that a source has and no target needs, in no order. The
// source is one that all targets share.
func (r *Resolver) Spare(s resource.Source) []resource.Key {
	var keys []resource.Key
	keys = spare(r, keys, resource.TypeListener, r.listeners, s)
	keys = spare(r, keys, resource.TypeRoutes, r.routes, s)
	keys = spare(r, keys, resource.TypeCluster, r.clusters, s)
	return spare(r, keys, resource.TypeAssignment, r.assignments, s)
}

func spare[V any](r *Resolver, keys []resource.Key, of resource.Type, l layers[V], s resource.Source) []resource.Key {
	for name, at := range l.shared {
		if key := (resource.Key{Type: of, Name: name}); at[s] != nil && !r.Needs(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Needs reports whether a target needs a resource, be it one that push or file
// have.
func (r *Resolver) Needs(key resource.Key) bool { return len(r.needs[key]) > 0 }

// Kept returns the management server that a kept resource, of SourceCache, is from.
// ok is false where nothing is kept of it that can be used.
func (r *Resolver) Kept(key resource.Key) (server string, ok bool) {
	switch key.Type {
	case resource.TypeListener:
		return r.listeners.kept(key.Name)
	case resource.TypeRoutes:
		return r.routes.kept(key.Name)
	case resource.TypeCluster:
		return r.clusters.kept(key.Name)
	case resource.TypeAssignment:
		return r.assignments.kept(key.Name)
	default:
		return "", false
	}
}
