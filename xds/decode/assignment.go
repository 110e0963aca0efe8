package decode

import (
	"fmt"
	"math"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// assignmentValidator validates one ClusterLoadAssignment. It compares each locality and
// endpoint with those before it.
type assignmentValidator struct {
	*report
	// weightless is true if no locality has a weight: each without one then weighs as
	// many as its usable endpoints.
	weightless bool
	levels     map[level]int
	sums       map[uint32]uint64 // of localities' weights, by priority
	addresses  map[string]place

	weight uint32 // of the first endpoint
	uneven bool   // another one has another
}

// validateAssignment validates a ClusterLoadAssignment, whose name is validated
// already.
func validateAssignment(r *report, m *endpointv3.ClusterLoadAssignment) *resource.Assignment {
	v := &assignmentValidator{report: r}
	a := &resource.Assignment{Name: m.GetClusterName(), Drops: v.drops(m.GetPolicy())}
	groups, endpoints := m.GetEndpoints(), 0
	for _, group := range groups {
		endpoints += len(group.GetLbEndpoints())
	}
	if v.byHand && v.tooLarge(len(groups), endpoints) {
		return a
	}
	v.levels = make(map[level]int, len(groups))
	v.sums = map[uint32]uint64{}
	v.addresses = make(map[string]place, endpoints)
	if v.byHand && weightless(groups) {
		v.weightless = true
		v.note("endpoints", "no locality has a load_balancing_weight: each without one weighs as many as its usable endpoints")
	}
	for i, group := range groups {
		if l := v.locality(i, group); l != nil {
			a.Localities = append(a.Localities, l)
		}
	}
	v.gaps(m)
	v.implicitDefaults(m)
	if v.byHand && v.uneven {
		v.warn("endpoints", "endpoints differ in load_balancing_weight: round_robin does not heed it")
	}
	return a
}

// drops judges the drop categories.
func (v *assignmentValidator) drops(p *endpointv3.ClusterLoadAssignment_Policy) []resource.Drop {
	overloads := p.GetDropOverloads()
	if len(overloads) == 0 {
		return nil
	}
	if v.byHand && len(overloads) > MaxDrops {
		v.refuse("policy.drop_overloads", "holds %d categories, of at most %d", len(overloads), MaxDrops)
		return nil
	}
	drops := make([]resource.Drop, 0, len(overloads))
	for i, o := range overloads {
		field := fmt.Sprintf("policy.drop_overloads[%d]", i)
		if v.byHand {
			v.category(field+".category", o.GetCategory(), drops)
		}
		drops = append(drops, resource.Drop{Category: o.GetCategory(), PerMillion: v.perMillion(field+".drop_percentage", o.GetDropPercentage())})
	}
	return drops
}

// category judges the name of a drop category that follows those before it.
func (v *assignmentValidator) category(field, name string, before []resource.Drop) {
	reason := badText(name, MaxCategoryBytes)
	switch {
	case name == "":
		v.refuse(field, "is empty: what is dropped is counted under it")
	case reason != "":
		v.refuse(field, "%s", reason)
	case slices.ContainsFunc(before, func(d resource.Drop) bool { return d.Category == name }):
		v.warn(field, "is %q a second time: each drops on its own, and they are counted together", name)
	}
}

// tooLarge refuses what is over the limits.
func (v *assignmentValidator) tooLarge(localities, endpoints int) bool {
	if localities > resource.MaxLocalities {
		v.refuse("endpoints", "holds %d localities, of at most %d", localities, resource.MaxLocalities)
	}
	if endpoints > MaxEndpoints {
		v.refuse("endpoints", "holds %d endpoints, of at most %d", endpoints, MaxEndpoints)
	}
	return localities > resource.MaxLocalities || endpoints > MaxEndpoints
}

// place is where in an assignment a locality or an endpoint stands.
type place struct{ group, endpoint int }

func (p place) String() string {
	return fmt.Sprintf("endpoints[%d].lb_endpoints[%d]", p.group, p.endpoint)
}

// level is a locality at a priority.
type level struct {
	priority uint32
	id       resource.Locality
}

// weightless reports whether some localities have no weight and no other has one
// but 0, which asks for no load.
func weightless(groups []*endpointv3.LocalityLbEndpoints) bool {
	absent := false
	for _, group := range groups {
		if group.GetLoadBalancingWeight().GetValue() > 0 {
			return false
		}
		absent = absent || group.GetLoadBalancingWeight() == nil
	}
	return absent
}

// locality judges one group of endpoints, and returns nil for one that is left
// out.
func (v *assignmentValidator) locality(i int, group *endpointv3.LocalityLbEndpoints) *resource.LocalityEndpoints {
	w := group.GetLoadBalancingWeight()
	counted := v.weightless && w == nil
	if w.GetValue() == 0 && !counted {
		v.warnByHand(fmt.Sprintf("endpoints[%d].load_balancing_weight", i),
			"is %s: the locality and its endpoints are left out", zeroOrAbsent(w != nil))
		return nil
	}
	id := group.GetLocality()
	l := &resource.LocalityEndpoints{
		ID:       resource.Locality{Region: id.GetRegion(), Zone: id.GetZone(), SubZone: id.GetSubZone()},
		Priority: group.GetPriority(),
		Weight:   w.GetValue(),
	}
	v.identity(i, l, id != nil)
	v.source(i, group)
	l.Endpoints = v.endpoints(i, group.GetLbEndpoints(), l.ID)
	if counted {
		l.Weight = v.count(i, l)
	}
	before := v.sums[l.Priority]
	v.sums[l.Priority] = before + uint64(l.Weight)
	if before <= math.MaxUint32 && v.sums[l.Priority] > math.MaxUint32 {
		v.refuse(fmt.Sprintf("endpoints[%d].load_balancing_weight", i),
			"makes the sum of the localities' weights in priority %d exceed %d", l.Priority, uint32(math.MaxUint32))
	}
	return l
}

func zeroOrAbsent(present bool) string {
	if present {
		return "0"
	}
	return "absent"
}

// identity judges the name of a locality.
func (v *assignmentValidator) identity(i int, l *resource.LocalityEndpoints, named bool) {
	field := fmt.Sprintf("endpoints[%d].locality", i)
	switch {
	case named && v.byHand:
		v.refuseIf(field+".region", badText(l.ID.Region, MaxLocalityBytes))
		v.refuseIf(field+".zone", badText(l.ID.Zone, MaxLocalityBytes))
		v.refuseIf(field+".sub_zone", badText(l.ID.SubZone, MaxLocalityBytes))
	case named:
	case v.byHand:
		v.note(field, "is absent: taken as the empty locality")
	default:
		v.refuse(field, "is absent")
	}
	at := level{l.Priority, l.ID}
	first, twice := v.levels[at]
	switch {
	case !twice:
		v.levels[at] = i
	case l.ID == resource.Locality{}:
		if named || v.byHand {
			v.refuse(field, "is the empty locality in priority %d, as endpoints[%d] is: "+
				"join their lb_endpoints, or give each a locality of its own", l.Priority, first)
		}
	default:
		v.refuse(field, "%s is in priority %d twice: endpoints[%d] is the first", l.ID, l.Priority, first)
	}
}

// source refuses, by hand, endpoints that come from somewhere else.
func (v *assignmentValidator) source(i int, group *endpointv3.LocalityLbEndpoints) {
	if !v.byHand {
		return
	}
	switch group.GetLbConfig().(type) {
	case *endpointv3.LocalityLbEndpoints_LoadBalancerEndpoints:
		v.refuse(fmt.Sprintf("endpoints[%d].load_balancer_endpoints", i), "is not supported: write lb_endpoints")
	case *endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig:
		v.refuse(fmt.Sprintf("endpoints[%d].leds_cluster_locality_config", i), "is not supported: write lb_endpoints")
	}
}

// count is the weight of a locality that is given none.
func (v *assignmentValidator) count(i int, l *resource.LocalityEndpoints) uint32 {
	var usable uint32
	for _, e := range l.Endpoints {
		if e.Usable() {
			usable++
		}
	}
	if usable > 0 {
		return usable
	}
	// Left out, its endpoints could not be seen, and its priority might be
	// missed. Nothing can be picked from it anyway.
	v.warn(fmt.Sprintf("endpoints[%d]", i), "has no usable endpoint: it weighs 1, and nothing is picked from it")
	return 1
}

// endpoints judges the endpoints of one locality.
func (v *assignmentValidator) endpoints(i int, list []*endpointv3.LbEndpoint, id resource.Locality) []*resource.Endpoint {
	endpoints := make([]*resource.Endpoint, len(list))
	var sum uint64
	for k, m := range list {
		e := v.endpoint(place{i, k}, m, id)
		endpoints[k] = e
		if v.weight == 0 {
			v.weight = e.Weight
		}
		v.uneven = v.uneven || e.Weight != v.weight
		sum += uint64(e.Weight)
	}
	if sum > math.MaxUint32 {
		v.refuse(fmt.Sprintf("endpoints[%d].lb_endpoints", i),
			"their load_balancing_weights sum to %d, which exceeds %d", sum, uint32(math.MaxUint32))
	}
	return endpoints
}

// endpoint judges one endpoint.
func (v *assignmentValidator) endpoint(at place, m *endpointv3.LbEndpoint, id resource.Locality) *resource.Endpoint {
	e := &resource.Endpoint{
		Hostname: m.GetEndpoint().GetHostname(),
		Health:   v.health(at, m.GetHealthStatus()),
		Weight:   1,
		HashKey:  hashKey(m.GetMetadata()),
		Locality: id,
	}
	if w := m.GetLoadBalancingWeight(); w != nil {
		e.Weight = w.GetValue()
		if e.Weight == 0 {
			v.refuse(at.String()+".load_balancing_weight", "is 0: it must be at least 1, or absent, which is 1")
		}
	}
	e.Addresses = v.all(at, m)
	if v.byHand && badText(e.Hostname, MaxHostnameBytes) != "" {
		v.refuse(at.String()+".endpoint.hostname", "%s", badText(e.Hostname, MaxHostnameBytes))
	}
	return e
}

// health converts a health status. One that lbd does not know is not usable, as
// in gRPC.
func (v *assignmentValidator) health(at place, s corev3.HealthStatus) resource.Health {
	if s >= 0 && s <= corev3.HealthStatus(resource.HealthDegraded) {
		return resource.Health(s)
	}
	if v.byHand {
		v.refuse(at.String()+".health_status", "is %d, which is no health status", s)
	}
	return resource.HealthUnrecognized
}

// hashKey is metadata envoy.lb hash_key (gRFC A76).
func hashKey(m *corev3.Metadata) string {
	return m.GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"].GetStringValue()
}

// gaps refuses each gap in the priorities.
func (v *assignmentValidator) gaps(m *endpointv3.ClusterLoadAssignment) {
	present := make([]uint32, 0, len(v.sums))
	for p := range v.sums {
		present = append(present, p)
	}
	slices.Sort(present)
	next := uint32(0)
	for _, p := range present {
		if p != next {
			i := slices.IndexFunc(m.GetEndpoints(), func(g *endpointv3.LocalityLbEndpoints) bool { return g.GetPriority() == p })
			v.refuse(fmt.Sprintf("endpoints[%d].priority", i), "is %d, and %s: priorities must begin at 0 and leave none out",
				p, missing(next, p-1))
		}
		next = p + 1
	}
}

// implicitDefaults warns of priorities that are written for Envoy's defaults, which
// spread load over priorities before the first has failed as a whole.
func (v *assignmentValidator) implicitDefaults(m *endpointv3.ClusterLoadAssignment) {
	if !v.byHand || v.stored || len(v.sums) < 2 || m.GetPolicy().GetOverprovisioningFactor() != nil {
		return
	}
	v.warn("endpoints", "hold %d priorities, and a priority is used until it fails as a whole: "+
		"Envoy's defaults, an overprovisioning factor of 1.4 and a panic threshold of 50 %%, are not applied", len(v.sums))
}

// missing says which priorities no locality with a weight has.
func missing(first, last uint32) string {
	if first == last {
		return fmt.Sprintf("no locality with a weight has priority %d", first)
	}
	return fmt.Sprintf("no locality with a weight has priorities %d to %d", first, last)
}
