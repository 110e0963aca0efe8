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
		if a.Name == prev.Name && a.LeftOut == prev.LeftOut && slices.Equal(localities, prev.Localities) {
			return prev
		}
	}
	return &Assignment{Name: a.Name, Drops: drops, Localities: localities, LeftOut: a.LeftOut}
}

type rank struct {
	priority uint32
	id       Locality
}

// reuse looks things up in an earlier assignment. What is where it was, or moved along with
// others, is found without the maps, which are made when they are needed.
type reuse struct {
	prev       *Assignment
	localities map[rank]*LocalityEndpoints
	endpoints  map[string]position
	scans      int // before the map of endpoints was made
}

// position is an endpoint and its index in its locality.
type position struct {
	endpoint *Endpoint
	index    int
}

// maxScans is how many endpoints are looked for one by one. The map takes the time of many.
const maxScans = 8

// locality returns prev's locality where it equals l, else l with what
// endpoints prev has. i is where l is in its assignment.
func (r *reuse) locality(i int, l *LocalityEndpoints) *LocalityEndpoints {
	old := r.same(i, l)
	if old != nil && len(old.Endpoints) == len(l.Endpoints) && (len(l.Endpoints) == 0 || &old.Endpoints[0] == &l.Endpoints[0]) {
		if old.Weight == l.Weight {
			return old
		}
		return l
	}
	var before []*Endpoint
	if old != nil {
		before = old.Endpoints
	}
	shared, at := false, 0 // at is where the next endpoint most likely is in before
	endpoints := make([]*Endpoint, len(l.Endpoints))
	for k, e := range l.Endpoints {
		endpoints[k], at = r.endpoint(before, at, e)
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

// endpoint returns prev's endpoint where it equals e, else e, and where the next one most
// likely is in before, the endpoints of the locality. Most likely, e is there at at.
func (r *reuse) endpoint(before []*Endpoint, at int, e *Endpoint) (*Endpoint, int) {
	if at < len(before) {
		switch was := before[at]; {
		case was == e || was.equal(e):
			return was, at + 1
		case was.Addresses[0] == e.Addresses[0]: // which no other has
			return e, at + 1
		}
	}
	was := r.find(e.Addresses[0])
	if was.index < len(before) && before[was.index] == was.endpoint {
		at = was.index + 1
	}
	if was.endpoint != nil && was.endpoint.equal(e) {
		return was.endpoint, at
	}
	return e, at
}

// find returns prev's endpoint with an address, or none.
func (r *reuse) find(address string) position {
	if r.scans++; r.scans <= maxScans {
		for _, l := range r.prev.Localities {
			for i, e := range l.Endpoints {
				if e.Addresses[0] == address {
					return position{e, i}
				}
			}
		}
		return position{}
	}
	if r.endpoints == nil {
		r.endpoints = make(map[string]position, len(r.prev.Localities))
		for _, l := range r.prev.Localities {
			for i, e := range l.Endpoints {
				r.endpoints[e.Addresses[0]] = position{e, i}
			}
		}
	}
	return r.endpoints[address]
}

func (e *Endpoint) equal(o *Endpoint) bool {
	return slices.Equal(e.Addresses, o.Addresses) &&
		e.Hostname == o.Hostname && e.Health == o.Health && e.Weight == o.Weight &&
		e.HashKey == o.HashKey && e.Locality == o.Locality && e.TTL == o.TTL
}
