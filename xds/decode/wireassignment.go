package decode

import (
	"bytes"
	"slices"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/xds/resource"
)

// wireAssignment is a ClusterLoadAssignment that the one-pass decoder reads.
type wireAssignment struct {
	failed bool // gave up

	groups  []wireGroup
	headers []localityGroup // of the groups
	policy  *endpointv3.ClusterLoadAssignment_Policy
	batch   endpointBatch
}

// wireGroup is a LocalityLbEndpoints.
type wireGroup struct {
	locality []byte // its Locality
	list     []byte // its lb_endpoints, with their tags
	size     int    // the number of its lb_endpoints

	endpoints []*resource.Endpoint
	fresh     []*resource.Endpoint // those that are not of the previous version
	// previous is the same locality of the previous version, or nil.
	previous *resource.LocalityEndpoints
}

// readAssignment is the one-pass decoder. It sets the value and the Raw of a
// ClusterLoadAssignment. If it reports false it gave up, and report and item are of no use.
func readAssignment(r *report, it *resource.Item, body []byte) bool {
	d := &wireAssignment{batch: endpointBatch{byHand: r.byHand, canonical: r.byHand && !r.Stored}}
	first := wire{body, &d.failed}
	name := r.name("cluster_name", string(first.text(1)))
	raw := make([]byte, 0, protowire.SizeTag(1)+protowire.SizeBytes(len(name))+len(first.rest))
	raw = protowire.AppendString(protowire.AppendTag(raw, 1, protowire.BytesType), name)
	rest := len(raw)
	raw = append(raw, first.rest...)
	if !d.read(r, wire{raw[rest:], &d.failed}) {
		return false
	}
	v := &assignmentValidator{report: r}
	a := &resource.Assignment{Name: name, Drops: v.drops(d.policy)}
	var kept []int
	v.localities(a, d.headers, d.policy.GetOverprovisioningFactor() != nil, func(i int) []*resource.Endpoint {
		kept = append(kept, i)
		return d.groups[i].endpoints
	})
	if !r.problems.empty() || !d.distinct(kept) {
		return false
	}
	for k, i := range kept {
		a.Localities[k] = d.groups[i].reuse(a.Localities[k])
	}
	if d.policy != nil {
		r.fields(&endpointv3.ClusterLoadAssignment{Policy: d.policy}, "")
	}
	it.Assignment, it.Raw, it.Shareable = a, raw, true
	return true
}

// read reads the assignment after its name.
func (d *wireAssignment) read(r *report, w wire) bool {
	if d.readGroups(&w); d.failed {
		return false
	}
	d.readPolicy(r, &w)
	w.end()
	was := readPrevious(r)
	for i := range d.groups {
		if d.failed {
			return false
		}
		d.readGroup(r, i, was.find(i, &d.groups[i], d.headers[i].priority))
	}
	return !d.failed
}

// readGroups reads all of the localities but their names and endpoints.
func (d *wireAssignment) readGroups(w *wire) {
	endpoints := 0
	for {
		group, ok := w.message(2)
		if !ok {
			return
		}
		var g wireGroup
		var h localityGroup
		locality, named := group.message(1)
		g.locality, h.named = locality.rest, named
		g.list, g.size = readEndpoints(&group)
		h.weight, h.weighted = group.wrapped(3)
		h.priority = group.uint32(5)
		group.end()
		if endpoints += g.size; endpoints > MaxEndpoints || len(d.groups) == resource.MaxLocalities {
			w.fail()
		}
		d.groups, d.headers = append(d.groups, g), append(d.headers, h)
	}
}

// readEndpoints reads the lb_endpoints of a locality, and moves the fields of each one to their
// place. It returns their bytes, tags included, and their number.
//
// Most programs write all fields in the order of their numbers, and Go writes those of a
// oneof after the others: the endpoint after health_status, metadata and
// load_balancing_weight.
func readEndpoints(w *wire) (list []byte, n int) {
	list = w.rest
	for {
		e, ok := w.message(2)
		if !ok {
			return list[:len(list)-len(w.rest)], n
		}
		n++
		all := e.rest
		if _, ok := e.message(1); ok && len(e.rest) > 0 {
			copy(all, slices.Concat(e.rest, all[:len(all)-len(e.rest)]))
		}
	}
}

// readPolicy reads the policy, which is small, as the reflective decoder does.
func (d *wireAssignment) readPolicy(r *report, w *wire) {
	body, ok := w.message(4)
	if !ok {
		return
	}
	d.policy = &endpointv3.ClusterLoadAssignment_Policy{}
	if limited.Unmarshal(body.rest, d.policy) != nil {
		w.fail()
		return
	}
	walk(r, d.policy)
	if again, err := canonical.Marshal(d.policy); err != nil || !r.unknown.empty() || !bytes.Equal(again, body.rest) {
		w.fail()
	}
}

// readGroup reads the name and the endpoints of a locality; was is the same locality of the
// previous version, or nil.
func (d *wireAssignment) readGroup(r *report, i int, was *wireGroup) {
	g, h := &d.groups[i], &d.headers[i]
	if was != nil {
		g.previous = was.previous
		h.id = was.previous.ID
		if bytes.Equal(g.list, was.list) {
			g.endpoints = was.previous.Endpoints
			return
		}
	} else {
		h.id = d.locality(g.locality)
	}
	b := &d.batch
	b.begin(h.id, g.size)
	list := wire{g.list, &d.failed}
	if was != nil {
		b.readChanged(list, was)
	} else {
		b.fresh = make([]*resource.Endpoint, 0, g.size)
		for i := range g.size {
			if i%pauseEndpoints == pauseEndpoints-1 {
				r.pause()
			}
			e, _ := list.message(2)
			b.read(i, e)
		}
	}
	b.flush(&list)
	g.endpoints, g.fresh = b.endpoints, b.fresh
}

func (d *wireAssignment) locality(body []byte) resource.Locality {
	w := wire{body, &d.failed}
	id := resource.Locality{Region: string(w.text(1)), Zone: string(w.text(2)), SubZone: string(w.text(3))}
	w.end()
	return id
}

// distinct reports whether each address is in the groups only once. Those of the previous
// version had no address twice.
func (d *wireAssignment) distinct(groups []int) bool {
	fresh, all := 0, 0
	for _, i := range groups {
		fresh += len(d.groups[i].fresh)
		all += len(d.groups[i].endpoints)
	}
	if fresh == 0 {
		return true
	}
	owners := make(map[string]*resource.Endpoint, fresh)
	for _, i := range groups {
		for _, e := range d.groups[i].fresh {
			for _, address := range e.Addresses {
				if owners[address] != nil {
					return false
				}
				owners[address] = e
			}
		}
	}
	if fresh == all {
		return true
	}
	for _, i := range groups {
		for _, e := range d.groups[i].endpoints {
			for _, address := range e.Addresses {
				if owner := owners[address]; owner != nil && owner != e {
					return false
				}
			}
		}
	}
	return true
}

// reuse returns the locality of the previous version if it equals l, else l.
func (g *wireGroup) reuse(l *resource.LocalityEndpoints) *resource.LocalityEndpoints {
	if p := g.previous; p != nil && len(g.fresh) == 0 && len(p.Endpoints) == g.size &&
		p.ID == l.ID && p.Priority == l.Priority && p.Weight == l.Weight && (g.size == 0 || &p.Endpoints[0] == &l.Endpoints[0]) {
		return p
	}
	return l
}
