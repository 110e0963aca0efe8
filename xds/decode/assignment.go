package decode

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// assignmentValidator validates one ClusterLoadAssignment, and compares its endpoints. Both
// decoders use it, but the one-pass decoder validates endpoints by itself.
type assignmentValidator struct {
	*report
	// weightless is true if no locality has a weight: each one without a weight then
	// gets the number of its usable endpoints.
	weightless bool
	levels     map[level]int
	sums       map[uint32]uint64 // of localities' weights, by priority
	addresses  map[string]place  // for the reflective decoder only

	weight uint32 // of the first endpoint
	uneven bool   // another endpoint has another weight

	hashKeys map[string]bool
	sameKey  string // a hash_key that several endpoints have, and how many have one of another endpoint
	same     int
}

type place struct{ group, endpoint int }

func (p place) String() string {
	return fmt.Sprintf("endpoints[%d].lb_endpoints[%d]", p.group, p.endpoint)
}

type level struct {
	priority uint32
	id       resource.Locality
}

// localityGroup is a LocalityLbEndpoints without its endpoints.
type localityGroup struct {
	id       resource.Locality
	named    bool // it has a locality
	priority uint32
	weight   uint32
	weighted bool // it has a load_balancing_weight
	// unsupported is the field that is set instead of lb_endpoints, or empty.
	unsupported string
}

// validateAssignment validates a message of the reflective decoder.
func validateAssignment(r *report, m *endpointv3.ClusterLoadAssignment) *resource.Assignment {
	v := &assignmentValidator{report: r}
	a := &resource.Assignment{Name: m.GetClusterName(), Drops: v.drops(m.GetPolicy())}
	list, endpoints := m.GetEndpoints(), 0
	for _, group := range list {
		endpoints += len(group.GetLbEndpoints())
	}
	if v.tooMany("endpoints", len(list), resource.MaxLocalities, "localities") || v.tooMany("endpoints", endpoints, MaxEndpoints, "endpoints") {
		return a
	}
	v.addresses = make(map[string]place, endpoints)
	groups := make([]localityGroup, len(list))
	for i, group := range list {
		w := group.GetLoadBalancingWeight()
		groups[i] = localityGroup{
			id:       localityOf(group),
			named:    group.GetLocality() != nil,
			priority: group.GetPriority(),
			weight:   w.GetValue(), weighted: w != nil,
			unsupported: oneof(group, "lb_config"),
		}
	}
	v.localities(a, groups, m.GetPolicy().GetOverprovisioningFactor() != nil, func(i int) []*resource.Endpoint {
		return v.endpoints(i, list[i].GetLbEndpoints(), groups[i].id)
	})
	return a
}

// localities validates the localities of an assignment, and adds those that are not left
// out. It calls endpoints for each of these, in their order.
func (v *assignmentValidator) localities(a *resource.Assignment, groups []localityGroup, overprovisioned bool, endpoints func(i int) []*resource.Endpoint) {
	v.levels = make(map[level]int, len(groups))
	v.sums = map[uint32]uint64{}
	if v.byHand && weightless(groups) {
		v.weightless = true
		v.note("endpoints", "no locality has a load_balancing_weight: using the number of usable endpoints as the weight of each locality")
	}
	for i := range groups {
		if v.leftOut(i, &groups[i]) {
			a.LeftOut++
			continue
		}
		a.Localities = append(a.Localities, v.locality(i, &groups[i], endpoints))
	}
	v.gaps(groups)
	// Envoy's defaults spread load over priorities before the first has failed as a whole.
	if v.byHand && !v.Stored && len(v.sums) > 1 && !overprovisioned {
		v.warn("endpoints", "hold %d priorities, and a priority is used until it fails as a whole: "+
			"Envoy's defaults, an overprovisioning factor of 1.4 and a panic threshold of 50 %%, are not applied", len(v.sums))
	}
	if v.uneven && !v.Stored {
		v.warnByHand("endpoints", ignoresWeights, resource.PolicyRoundRobin) // see JudgeWeights
	}
	if v.same > 0 && !v.Stored {
		v.warnByHand("endpoints", "hold %d endpoints with the hash_key of another one, such as %q: RING_HASH picks only one endpoint for a hash_key", v.same, v.sameKey)
	}
}

func (v *assignmentValidator) drops(p *endpointv3.ClusterLoadAssignment_Policy) []resource.Drop {
	overloads := p.GetDropOverloads()
	if len(overloads) == 0 || v.tooMany("policy.drop_overloads", len(overloads), MaxDrops, "categories") {
		return nil
	}
	drops := make([]resource.Drop, 0, len(overloads))
	for i, o := range overloads {
		field := element("policy.drop_overloads", i)
		if v.byHand {
			v.category(field+".category", o.GetCategory(), drops)
		}
		drops = append(drops, resource.Drop{Category: o.GetCategory(), PerMillion: v.perMillion(field+".drop_percentage", o.GetDropPercentage())})
	}
	return drops
}

// category validates the name of a drop category that follows those before it.
func (v *assignmentValidator) category(field, name string, before []resource.Drop) {
	if name == "" {
		v.reject(field, "required: drops are counted by category")
	} else if reason := badText(name, MaxCategoryBytes); reason != "" {
		v.rejectIf(field, reason)
	} else if slices.ContainsFunc(before, func(d resource.Drop) bool { return d.Category == name }) {
		v.warn(field, "is %q a second time: each drops on its own, and they are counted together", name)
	}
}

// weightless reports whether some localities have no weight and no other has one
// but 0, which asks for no load.
func weightless(groups []localityGroup) bool {
	absent := false
	for i := range groups {
		if groups[i].weight > 0 {
			return false
		}
		absent = absent || !groups[i].weighted
	}
	return absent
}

// leftOut warns of a locality that gets no load, and reports whether it is one.
func (v *assignmentValidator) leftOut(i int, group *localityGroup) bool {
	if group.gets(v.weightless) {
		return false
	}
	v.warnByHand(element("endpoints", i)+".load_balancing_weight",
		"is %s: the locality and its endpoints are left out", zeroOrAbsent(group.weighted))
	return true
}

// gets reports whether the locality gets load in an assignment that is weightless, or not.
func (g *localityGroup) gets(weightless bool) bool { return g.weight > 0 || weightless && !g.weighted }

// locality validates one group of endpoints.
func (v *assignmentValidator) locality(i int, group *localityGroup, endpoints func(i int) []*resource.Endpoint) *resource.LocalityEndpoints {
	l := &resource.LocalityEndpoints{ID: group.id, Priority: group.priority, Weight: group.weight}
	v.identity(i, l, group.named)
	if v.byHand && group.unsupported != "" {
		v.reject(element("endpoints", i)+"."+group.unsupported, "is not supported: write lb_endpoints")
	}
	l.Endpoints = endpoints(i)
	v.weigh(i, l.Endpoints)
	if l.Weight == 0 {
		l.Weight = v.count(i, l)
	}
	before := v.sums[l.Priority]
	v.sums[l.Priority] = before + uint64(l.Weight)
	if before <= math.MaxUint32 && v.sums[l.Priority] > math.MaxUint32 {
		v.reject(element("endpoints", i)+".load_balancing_weight",
			"makes the sum of the localities' weights in priority %d exceed %d", l.Priority, uint32(math.MaxUint32))
	}
	return l
}

// weigh validates the weights of a locality's endpoints.
func (v *assignmentValidator) weigh(i int, endpoints []*resource.Endpoint) {
	var sum uint64
	for _, e := range endpoints {
		if v.weight == 0 {
			v.weight = e.Weight
		}
		v.uneven = v.uneven || e.Weight != v.weight
		sum += uint64(e.Weight)
		if e.HashKey == "" {
			continue
		}
		if v.hashKeys == nil {
			v.hashKeys = map[string]bool{}
		}
		if v.hashKeys[e.HashKey] {
			v.sameKey = e.HashKey
			v.same++
		}
		v.hashKeys[e.HashKey] = true
	}
	if sum > math.MaxUint32 {
		v.reject(fmt.Sprintf("endpoints[%d].lb_endpoints", i),
			"their load_balancing_weights sum to %d, which exceeds %d", sum, uint32(math.MaxUint32))
	}
}

func zeroOrAbsent(present bool) string {
	if present {
		return "0"
	}
	return "absent"
}

// identity validates the name of a locality, which must be unique in its priority.
func (v *assignmentValidator) identity(i int, l *resource.LocalityEndpoints, named bool) {
	field := func() string { return fmt.Sprintf("endpoints[%d].locality", i) }
	switch {
	case named && v.byHand:
		for _, part := range [...]struct{ name, text string }{{"region", l.ID.Region}, {"zone", l.ID.Zone}, {"sub_zone", l.ID.SubZone}} {
			if reason := badText(part.text, MaxLocalityBytes); reason != "" {
				v.reject(field()+"."+part.name, "%s", reason)
			}
		}
	case v.byHand:
		v.note(field(), "is absent: taken as the empty locality")
	case !named:
		v.reject(field(), "is absent")
	}
	at := level{l.Priority, l.ID}
	first, twice := v.levels[at]
	switch {
	case !twice:
		v.levels[at] = i
	case l.ID != resource.Locality{}:
		v.reject(field(), "%s is in priority %d twice: endpoints[%d] is the first", l.ID, l.Priority, first)
	case named || v.byHand:
		v.reject(field(), "is the empty locality in priority %d, as endpoints[%d] is: "+
			"join their lb_endpoints, or give each a locality of its own", l.Priority, first)
	}
}

// count returns the weight of a locality that has none: its usable endpoints, at least
// 1. Without them nothing can be picked from it, but the API must show it, and its
// priority may have no other.
func (v *assignmentValidator) count(i int, l *resource.LocalityEndpoints) uint32 {
	usable := uint32(l.Usable())
	if usable == 0 {
		v.warn(element("endpoints", i), "has no usable endpoint: it weighs 1, and nothing is picked from it")
	}
	return max(usable, 1)
}

func (v *assignmentValidator) endpoints(i int, list []*endpointv3.LbEndpoint, id resource.Locality) []*resource.Endpoint {
	endpoints := make([]*resource.Endpoint, len(list))
	for k, m := range list {
		if k%pauseEndpoints == pauseEndpoints-1 {
			v.pause()
		}
		endpoints[k] = v.endpoint(place{i, k}, m, id)
	}
	return endpoints
}

func (v *assignmentValidator) endpoint(at place, m *endpointv3.LbEndpoint, id resource.Locality) *resource.Endpoint {
	e := &resource.Endpoint{
		Hostname: m.GetEndpoint().GetHostname(),
		Health:   v.health(at, m.GetHealthStatus()),
		Weight:   1,
		HashKey:  m.GetMetadata().GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"].GetStringValue(), // gRFC A76
		Locality: id,
	}
	if w := m.GetLoadBalancingWeight(); w != nil {
		e.Weight = w.GetValue()
		if e.Weight == 0 {
			v.reject(at.String()+".load_balancing_weight", "is 0: it must be at least 1, or absent, which is 1")
		}
	}
	v.hashKey(at, m.GetMetadata())
	e.TTL = v.ttl(at, m.GetMetadata().GetFilterMetadata()["lbd"].GetFields())
	e.Addresses = v.endpointAddresses(at, m)
	if reason := badText(e.Hostname, MaxHostnameBytes); v.byHand && reason != "" {
		v.reject(at.String()+".endpoint.hostname", "%s", reason)
	}
	return e
}

// hashKey warns of a hash_key that gRPC ignores (gRFC A76).
func (v *assignmentValidator) hashKey(at place, m *corev3.Metadata) {
	key := m.GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"]
	if _, isText := key.GetKind().(*structpb.Value_StringValue); key != nil && !isText {
		v.warnByHand(at.String()+`.metadata.filter_metadata["envoy.lb"].hash_key`, "is no string, and not applied: put it in quotes")
	}
}

// health converts a health status. As in gRPC, an unknown one is not usable.
func (v *assignmentValidator) health(at place, s corev3.HealthStatus) resource.Health {
	if s >= 0 && s <= corev3.HealthStatus(resource.HealthDegraded) {
		return resource.Health(s)
	}
	if v.byHand {
		v.reject(at.String()+".health_status", "is %d, which is no health status", s)
	}
	return resource.HealthUnrecognized
}

func (v *assignmentValidator) gaps(groups []localityGroup) {
	next := uint32(0)
	for _, p := range slices.Sorted(maps.Keys(v.sums)) {
		if p != next {
			missing := fmt.Sprintf("priority %d", next)
			if next != p-1 {
				missing = fmt.Sprintf("priorities %d to %d", next, p-1)
			}
			i := slices.IndexFunc(groups, func(g localityGroup) bool { return g.priority == p })
			v.reject(element("endpoints", i)+".priority", "is %d, and no locality with a weight has %s: priorities must begin at 0 and leave none out", p, missing)
		}
		next = p + 1
	}
}
