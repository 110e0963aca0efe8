package resolver

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// typeHost is the type of a DNS name in the key of a need.
const typeHost resource.Type = "host"

// need is the use of a resource, or DNS name, by one target. It exists while there is one.
type need struct {
	roots  few.Map[*root, struct{}]
	routed bool // as the target's Listener or RouteConfiguration
}

// needed returns a target's need of a key. It adds one if there is none.
func (r *Resolver) needed(t *target, key resource.Key) *need {
	all := r.needs[key]
	if all == nil {
		all = new(few.Map[*target, *need])
		r.needs[key] = all
		if key.Type == typeHost {
			r.hostNames[key.Name] = true
		}
	}
	n := all.Get(t)
	if n == nil {
		n = &need{}
		all.Set(t, n)
		r.recheck(t, key)
	}
	return n
}

// removeUnused removes a need without a use.
func (r *Resolver) removeUnused(t *target, key resource.Key, n *need) {
	if n.roots.Len() > 0 || n.routed {
		return
	}
	all := r.needs[key]
	if all.Delete(t); all.Len() == 0 {
		delete(r.needs, key)
		if key.Type == typeHost {
			delete(r.hostNames, key.Name)
		}
	}
	if key.Type == resource.TypeCluster {
		t.parts.Delete(key.Name)
	}
	r.recheck(t, key)
}

// targetResource is a resource that is requested for a target.
type targetResource struct {
	target string
	key    resource.Key
}

// requests are the resources that are requested from management servers.
type requests struct {
	current   map[targetResource]struct{} // as of the last Wanted
	unchecked map[targetResource]struct{} // the next Wanted may change them
}

func (r *Resolver) recheck(t *target, key resource.Key) {
	if r.options.Server && key.Type != typeHost {
		r.requests.unchecked[targetResource{t.name, key}] = struct{}{}
	}
}

// accepts reports whether an update of a management server applies: the resource is
// needed, or was at the last Wanted.
func (r *Resolver) accepts(w targetResource) bool {
	_, requested := r.requests.current[w]
	return requested || r.requestable(w)
}

// requestable reports whether a resource must be requested: the target needs it, and
// neither a push nor a file has it, or what these cover is watched.
func (r *Resolver) requestable(w targetResource) bool {
	return r.needs[w.key].Get(r.targets[w.target]) != nil && (!r.layers.covered(w.key) || r.watched(w))
}

// Want is a change of the resources that are requested for a target, by type and name.
type Want struct {
	Target    string
	Add, Drop []resource.Key
}

// Wanted returns the changes since the last call, by target. The resolver drops the state of
// dropped resources: the server must send them again. Without Options.Server there are
// none.
func (r *Resolver) Wanted() []Want {
	var wants []Want
	unchecked := slices.SortedFunc(maps.Keys(r.requests.unchecked), func(a, b targetResource) int {
		return cmp.Or(cmp.Compare(a.target, b.target), compareKeys(a.key, b.key))
	})
	for _, w := range unchecked {
		_, requested := r.requests.current[w]
		if r.requestable(w) == requested {
			continue
		}
		if len(wants) == 0 || wants[len(wants)-1].Target != w.target {
			wants = append(wants, Want{Target: w.target})
		}
		of := &wants[len(wants)-1]
		if requested {
			delete(r.requests.current, w)
			of.Drop = append(of.Drop, w.key)
			r.take(resource.SourceADS, &resource.Update{Target: w.target, Item: resource.Item{Key: w.key}})
			r.updateCovered(w.key)
		} else {
			r.requests.current[w] = struct{}{}
			of.Add = append(of.Add, w.key)
		}
	}
	r.requests.unchecked = make(map[targetResource]struct{}) // a cleared map stays as large as it was
	return wants
}

func compareKeys(a, b resource.Key) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

// Spare returns the resources that a shared source has and no target needs, in no order.
func (r *Resolver) Spare(s resource.Source) []resource.Key {
	var keys []resource.Key
	for key, at := range r.layers.shared {
		if at[s] != nil && !r.Needs(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// Needs reports whether a target needs a resource, from any source.
func (r *Resolver) Needs(key resource.Key) bool { return r.needs[key].Len() > 0 }

// Kept returns the management server of a resource of SourceCache. ok is false without a
// usable cached version.
func (r *Resolver) Kept(key resource.Key) (server string, ok bool) {
	is := r.layers.get(resource.SourceCache, "", key)
	if !is.good() {
		return "", false
	}
	return is.Server, true
}
