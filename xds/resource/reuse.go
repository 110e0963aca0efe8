package resource

import "slices"

// Reuse returns a, sharing with prev whatever is equal: prev itself where all
// is, so that equal pointers mean that nothing changed; else prev's Drops and
// LocalityEndpoints where equal; else prev's Endpoints where equal, found by
// their first address wherever they were. Neither a nor prev, which may be nil,
// is modified; the result may be a new Assignment.
func (a *Assignment) Reuse(prev *Assignment) *Assignment {
	if prev == nil || a == prev {
		return a
	}
	r := reuse{prev: prev}
	localities := slices.Clone(a.Localities)
	for i, l := range localities {
		localities[i] = r.locality(i, l)
	}
	drops := a.Drops
	if slices.Equal(drops, prev.Drops) {
		drops = prev.Drops
		if a.Name == prev.Name && slices.Equal(localities, prev.Localities) {
			return prev
		}
	}
	return &Assignment{Name: a.Name, Drops: drops, Localities: localities}
}

type rank struct {
	priority uint32
	id       Locality
}

// reuse looks things up in an earlier assignment. What is where it was is found
// without the maps, which are made when first needed.
type reuse struct {
	prev       *Assignment
	localities map[rank]*LocalityEndpoints
	endpoints  map[string]*Endpoint
}

// locality returns prev's locality where it equals l, else l with what
// endpoints prev has. i is where l is in its assignment.
func (r *reuse) locality(i int, l *LocalityEndpoints) *LocalityEndpoints {
	old := r.same(i, l)
	shared := false
	endpoints := make([]*Endpoint, len(l.Endpoints))
	for k, e := range l.Endpoints {
		endpoints[k] = r.endpoint(old, k, e)
		shared = shared || endpoints[k] != e
	}
	switch {
	case old != nil && old.Weight == l.Weight && slices.Equal(endpoints, old.Endpoints):
		return old
	case shared:
		return &LocalityEndpoints{ID: l.ID, Priority: l.Priority, Weight: l.Weight, Endpoints: endpoints}
	default:
		return l
	}
}

// same returns prev's locality of the same name and priority, or nil.
func (r *reuse) same(i int, l *LocalityEndpoints) *LocalityEndpoints {
	if i < len(r.prev.Localities) {
		if old := r.prev.Localities[i]; old.ID == l.ID && old.Priority == l.Priority {
			return old
		}
	}
	if r.localities == nil {
		r.localities = make(map[rank]*LocalityEndpoints, len(r.prev.Localities))
		for _, old := range r.prev.Localities {
			r.localities[rank{old.Priority, old.ID}] = old
		}
	}
	return r.localities[rank{l.Priority, l.ID}]
}

// endpoint returns prev's endpoint where it equals e, else e. old is the
// locality where it most likely is, at k.
func (r *reuse) endpoint(old *LocalityEndpoints, k int, e *Endpoint) *Endpoint {
	if old != nil && k < len(old.Endpoints) && old.Endpoints[k].equal(e) {
		return old.Endpoints[k]
	}
	if r.endpoints == nil {
		r.endpoints = make(map[string]*Endpoint, len(r.prev.Localities))
		for _, l := range r.prev.Localities {
			for _, e := range l.Endpoints {
				r.endpoints[e.Addresses[0]] = e
			}
		}
	}
	if was, ok := r.endpoints[e.Addresses[0]]; ok && was.equal(e) {
		return was
	}
	return e
}

func (e *Endpoint) equal(o *Endpoint) bool {
	return slices.Equal(e.Addresses, o.Addresses) &&
		e.Hostname == o.Hostname && e.Health == o.Health && e.Weight == o.Weight &&
		e.HashKey == o.HashKey && e.Locality == o.Locality
}
