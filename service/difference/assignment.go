package difference

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// assignment compares drops, localities and endpoints.
func (p *parts) assignment(before, after *resource.Assignment) {
	was, is := localities(before), localities(after)
	ids := maps.Clone(was)
	maps.Copy(ids, is)
	for _, id := range slices.SortedFunc(maps.Keys(ids), func(a, b resource.Locality) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.SubZone, b.SubZone))
	}) {
		p.locality(id, was[id], is[id])
	}
	p.drops(before.Drops, after.Drops)
	if len(p.list) == 0 && p.more == 0 && !reflect.DeepEqual(before.Localities, after.Localities) {
		p.add("order or attributes of endpoints changed")
	}
}

// group is a locality, once for each of its priorities.
type group []*resource.LocalityEndpoints

func localities(a *resource.Assignment) map[resource.Locality]group {
	out := map[resource.Locality]group{}
	for _, l := range a.Localities {
		out[l.ID] = append(out[l.ID], l)
	}
	return out
}

func (g group) endpoints() int {
	n := 0
	for _, l := range g {
		n += len(l.Endpoints)
	}
	return n
}

func (p *parts) locality(id resource.Locality, before, after group) {
	switch name := name(id); {
	case len(before) == 0:
		p.add("%s added with %s", locality(name), Count(after.endpoints(), "endpoint"))
	case len(after) == 0:
		p.add("%s removed with %s", locality(name), Count(before.endpoints(), "endpoint"))
	case slices.Equal(before, after): // shared, so the same
	case before.priorities() != after.priorities():
		p.add("priority of %s %s → %s", name, before.priorities(), after.priorities())
		p.endpoints(name, before, after)
	default:
		for i := range after {
			changed(p, "weight of "+name, before[i].Weight, after[i].Weight)
		}
		p.endpoints(name, before, after)
	}
}

// locality is the name of a locality at the start of a part.
func locality(name string) string {
	if name == emptyLocality {
		return name
	}
	return "locality " + name
}

const emptyLocality = "the empty locality"

func (g group) priorities() string {
	out := make([]string, len(g))
	for i, l := range g {
		out[i] = strconv.FormatUint(uint64(l.Priority), 10)
	}
	return strings.Join(out, "+")
}

// name is region/zone, or with the sub-zone region/zone/sub_zone.
func name(l resource.Locality) string {
	switch {
	case l == resource.Locality{}:
		return emptyLocality
	case l.SubZone == "":
		return l.Region + "/" + l.Zone
	default:
		return l.String()
	}
}

// endpoints compares the endpoints of a locality by their first addresses.
func (p *parts) endpoints(of string, before, after group) {
	before, after = before.changed(after), after.changed(before)
	was := before.byAddress()
	added, health, weights, others := 0, 0, 0, 0
	var example string
	for _, l := range after {
		for _, e := range l.Endpoints {
			old := was[e.Addresses[0]]
			delete(was, e.Addresses[0])
			switch {
			case old == nil:
				added++
				example = e.Addresses[0]
			case old == e:
			case old.Usable() != e.Usable() || old.Health != e.Health:
				health++
				example = fmt.Sprintf("%s %v → %v", e.Addresses[0], old.Health, e.Health)
			case old.Weight != e.Weight:
				weights++
			case old.Hostname != e.Hostname || !slices.Equal(old.Addresses, e.Addresses):
				others++
			}
		}
	}
	one := func(n int) string {
		if n == 1 && added+health == 1 {
			return " (" + example + ")"
		}
		return ""
	}
	if n := len(was); n > 0 {
		p.add("%s removed from %s", Count(n, "endpoint"), of)
	}
	if added > 0 {
		p.add("%s added to %s%s", Count(added, "endpoint"), of, one(added))
	}
	if health > 0 {
		p.add("health of %s in %s changed%s", Count(health, "endpoint"), of, one(health))
	}
	if weights > 0 {
		p.add("weight of %s in %s changed", Count(weights, "endpoint"), of)
	}
	if others > 0 {
		p.add("addresses or names of %s in %s changed", Count(others, "endpoint"), of)
	}
}

// changed returns the group without the endpoints before the first and after the last that
// other, an earlier or a later version, does not share.
func (g group) changed(other group) group {
	if len(g) != len(other) {
		return g
	}
	out := make(group, len(g))
	for i, l := range g {
		a, b := l.Endpoints, other[i].Endpoints
		for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
			a, b = a[1:], b[1:]
		}
		for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		out[i] = &resource.LocalityEndpoints{Endpoints: a}
	}
	return out
}

func (g group) byAddress() map[string]*resource.Endpoint {
	out := make(map[string]*resource.Endpoint, g.endpoints())
	for _, l := range g {
		for _, e := range l.Endpoints {
			out[e.Addresses[0]] = e
		}
	}
	return out
}

func (p *parts) drops(before, after []resource.Drop) {
	was, is := perMillion(before), perMillion(after)
	for _, category := range slices.Sorted(maps.Keys(is)) {
		old, ok := was[category]
		switch {
		case !ok:
			p.add("drop %s %s added", category, percent(is[category]))
		case old != is[category]:
			p.add("drop %s %s → %s", category, percent(old), percent(is[category]))
		}
		delete(was, category)
	}
	for _, category := range slices.Sorted(maps.Keys(was)) {
		p.add("drop %s %s removed", category, percent(was[category]))
	}
}

func perMillion(drops []resource.Drop) map[string]uint64 {
	out := map[string]uint64{}
	for _, d := range drops {
		out[d.Category] += d.PerMillion
	}
	return out
}

func percent(perMillion uint64) string {
	return strconv.FormatFloat(float64(perMillion)/1e4, 'f', -1, 64) + " %"
}
