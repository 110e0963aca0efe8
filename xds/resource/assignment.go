package resource

import (
	"fmt"
	"math"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// million is the unit of drops, and the most of them.
const million = 1_000_000

// assignment judges a ClusterLoadAssignment, whose name is judged already, and
// makes the value. The value is of use only where nothing was refused.
func (v *verdict) assignment(m *endpointv3.ClusterLoadAssignment) *Assignment {
	a := &Assignment{Name: m.GetClusterName(), Drops: v.drops(m.GetPolicy())}
	if v.byHand && v.tooLarge(m) {
		return a
	}
	f := newFloor(v, m)
	for i, group := range m.GetEndpoints() {
		if l := f.locality(i, group); l != nil {
			a.Localities = append(a.Localities, l)
		}
	}
	f.gaps(m)
	f.implicitDefaults(m)
	if v.byHand && f.uneven {
		v.warn("endpoints", "endpoints differ in load_balancing_weight: round_robin does not heed it")
	}
	return a
}

// drops judges the drop categories.
func (v *verdict) drops(p *endpointv3.ClusterLoadAssignment_Policy) []Drop {
	overloads := p.GetDropOverloads()
	if len(overloads) == 0 {
		return nil
	}
	if v.byHand && len(overloads) > MaxDrops {
		v.refuse("policy.drop_overloads", "holds %d categories, of at most %d", len(overloads), MaxDrops)
		return nil
	}
	drops := make([]Drop, 0, len(overloads))
	for i, o := range overloads {
		field := fmt.Sprintf("policy.drop_overloads[%d]", i)
		if v.byHand {
			v.category(field+".category", o.GetCategory(), drops)
		}
		drops = append(drops, Drop{o.GetCategory(), v.perMillion(field+".drop_percentage", o.GetDropPercentage())})
	}
	return drops
}

// category judges the name of a drop category that follows those before it.
func (v *verdict) category(field, name string, before []Drop) {
	reason := unprintable(name)
	switch {
	case name == "":
		v.refuse(field, "is empty: what is dropped is counted under it")
	case len(name) > MaxCategoryBytes:
		v.refuse(field, "is %d bytes long, of at most %d", len(name), MaxCategoryBytes)
	case reason != "":
		v.refuse(field, "%s", reason)
	case slices.ContainsFunc(before, func(d Drop) bool { return d.Category == name }):
		v.warn(field, "is %q a second time: each drops on its own, and they are counted together", name)
	}
}

// perMillion converts a chance to parts per million, at most all of them.
func (v *verdict) perMillion(field string, p *typev3.FractionalPercent) uint64 {
	var denominator uint64
	switch p.GetDenominator() {
	case typev3.FractionalPercent_HUNDRED:
		denominator = 100
	case typev3.FractionalPercent_TEN_THOUSAND:
		denominator = 10_000
	case typev3.FractionalPercent_MILLION:
		denominator = million
	default:
		v.refuse(field+".denominator", "is %d, which is none of HUNDRED, TEN_THOUSAND, MILLION", p.GetDenominator())
		return 0
	}
	numerator := uint64(p.GetNumerator())
	if numerator > denominator {
		v.warnByHand(field+".numerator", "is %d of %d: taken as all of them", numerator, denominator)
	}
	return min(numerator*(million/denominator), million)
}

// tooLarge refuses what is over the limits.
func (v *verdict) tooLarge(m *endpointv3.ClusterLoadAssignment) bool {
	endpoints := 0
	for _, group := range m.GetEndpoints() {
		endpoints += len(group.GetLbEndpoints())
	}
	localities := len(m.GetEndpoints())
	if localities > MaxLocalities {
		v.refuse("endpoints", "holds %d localities, of at most %d", localities, MaxLocalities)
	}
	if endpoints > MaxEndpoints {
		v.refuse("endpoints", "holds %d endpoints, of at most %d", endpoints, MaxEndpoints)
	}
	return localities > MaxLocalities || endpoints > MaxEndpoints
}

// place is where in an assignment a locality or an endpoint stands.
type place struct{ group, endpoint int }

func (p place) String() string {
	return fmt.Sprintf("endpoints[%d].lb_endpoints[%d]", p.group, p.endpoint)
}

// level is a locality at a priority.
type level struct {
	priority uint32
	id       Locality
}

// floor is what the localities of an assignment are judged against: those that
// came before.
type floor struct {
	*verdict
	// weightless is true where not one locality bears a weight, and each
	// without one then weighs as many as its usable endpoints.
	weightless bool
	levels     map[level]int
	sums       map[uint32]uint64 // of localities' weights, by priority
	addresses  map[string]place

	weight uint32 // of the first endpoint
	uneven bool   // another one has another
}

func newFloor(v *verdict, m *endpointv3.ClusterLoadAssignment) *floor {
	groups := m.GetEndpoints()
	endpoints := 0
	for _, group := range groups {
		endpoints += len(group.GetLbEndpoints())
	}
	f := &floor{
		verdict:   v,
		levels:    make(map[level]int, len(groups)),
		sums:      map[uint32]uint64{},
		addresses: make(map[string]place, endpoints),
	}
	if v.byHand && weightless(groups) {
		f.weightless = true
		v.note("endpoints", "no locality has a load_balancing_weight: each without one weighs as many as its usable endpoints")
	}
	return f
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
func (f *floor) locality(i int, group *endpointv3.LocalityLbEndpoints) *LocalityEndpoints {
	w := group.GetLoadBalancingWeight()
	counted := f.weightless && w == nil
	if w.GetValue() == 0 && !counted {
		f.warnByHand(fmt.Sprintf("endpoints[%d].load_balancing_weight", i),
			"is %s: the locality and its endpoints are left out", zeroOrAbsent(w != nil))
		return nil
	}
	id := group.GetLocality()
	l := &LocalityEndpoints{
		ID:       Locality{id.GetRegion(), id.GetZone(), id.GetSubZone()},
		Priority: group.GetPriority(),
		Weight:   w.GetValue(),
	}
	f.identity(i, l, id != nil)
	f.source(i, group)
	l.Endpoints = f.endpoints(i, group.GetLbEndpoints(), l.ID)
	if counted {
		l.Weight = f.count(i, l)
	}
	before := f.sums[l.Priority]
	f.sums[l.Priority] = before + uint64(l.Weight)
	if before <= math.MaxUint32 && f.sums[l.Priority] > math.MaxUint32 {
		f.refuse(fmt.Sprintf("endpoints[%d].load_balancing_weight", i),
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
func (f *floor) identity(i int, l *LocalityEndpoints, named bool) {
	field := fmt.Sprintf("endpoints[%d].locality", i)
	switch {
	case named && f.byHand:
		f.printable(field+".region", l.ID.Region)
		f.printable(field+".zone", l.ID.Zone)
		f.printable(field+".sub_zone", l.ID.SubZone)
	case named:
	case f.byHand:
		f.note(field, "is absent: taken as the empty locality")
	default:
		f.refuse(field, "is absent")
	}
	at := level{l.Priority, l.ID}
	first, twice := f.levels[at]
	switch {
	case !twice:
		f.levels[at] = i
	case l.ID == Locality{}:
		if named || f.byHand {
			f.refuse(field, "is the empty locality in priority %d, as endpoints[%d] is: "+
				"join their lb_endpoints, or give each a locality of its own", l.Priority, first)
		}
	default:
		f.refuse(field, "%s is in priority %d twice: endpoints[%d] is the first", l.ID, l.Priority, first)
	}
}

// printable judges a part of a locality's name, which answers and metrics carry.
func (f *floor) printable(field, part string) {
	if len(part) > MaxLocalityBytes {
		f.refuse(field, "is %d bytes long, of at most %d", len(part), MaxLocalityBytes)
	} else if reason := unprintable(part); reason != "" {
		f.refuse(field, "%s", reason)
	}
}

// source refuses, by hand, endpoints that come from somewhere else.
func (f *floor) source(i int, group *endpointv3.LocalityLbEndpoints) {
	if !f.byHand {
		return
	}
	switch group.GetLbConfig().(type) {
	case *endpointv3.LocalityLbEndpoints_LoadBalancerEndpoints:
		f.refuse(fmt.Sprintf("endpoints[%d].load_balancer_endpoints", i), "is not supported: write lb_endpoints")
	case *endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig:
		f.refuse(fmt.Sprintf("endpoints[%d].leds_cluster_locality_config", i), "is not supported: write lb_endpoints")
	}
}

// count is the weight of a locality that is given none.
func (f *floor) count(i int, l *LocalityEndpoints) uint32 {
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
	f.warn(fmt.Sprintf("endpoints[%d]", i), "has no usable endpoint: it weighs 1, and nothing is picked from it")
	return 1
}

// endpoints judges the endpoints of one locality.
func (f *floor) endpoints(i int, list []*endpointv3.LbEndpoint, id Locality) []*Endpoint {
	endpoints := make([]*Endpoint, len(list))
	var sum uint64
	for k, m := range list {
		e := f.endpoint(place{i, k}, m, id)
		endpoints[k] = e
		if f.weight == 0 {
			f.weight = e.Weight
		}
		f.uneven = f.uneven || e.Weight != f.weight
		sum += uint64(e.Weight)
	}
	if sum > math.MaxUint32 {
		f.refuse(fmt.Sprintf("endpoints[%d].lb_endpoints", i),
			"their load_balancing_weights sum to %d, which exceeds %d", sum, uint32(math.MaxUint32))
	}
	return endpoints
}

// endpoint judges one endpoint.
func (f *floor) endpoint(at place, m *endpointv3.LbEndpoint, id Locality) *Endpoint {
	e := &Endpoint{
		Hostname: m.GetEndpoint().GetHostname(),
		Health:   f.health(at, m.GetHealthStatus()),
		Weight:   1,
		HashKey:  hashKey(m.GetMetadata()),
		Locality: id,
	}
	if w := m.GetLoadBalancingWeight(); w != nil {
		e.Weight = w.GetValue()
		if e.Weight == 0 {
			f.refuse(at.String()+".load_balancing_weight", "is 0: it must be at least 1, or absent, which is 1")
		}
	}
	e.Addresses = f.all(at, m)
	if f.byHand {
		f.hostname(at, e.Hostname)
	}
	return e
}

// hostname judges an endpoint's hostname, which answers carry.
func (f *floor) hostname(at place, name string) {
	field := ".endpoint.hostname"
	if len(name) > MaxHostnameBytes {
		f.refuse(at.String()+field, "is %d bytes long, of at most %d", len(name), MaxHostnameBytes)
	} else if reason := unprintable(name); reason != "" {
		f.refuse(at.String()+field, "%s", reason)
	}
}

// health converts a health status. One that lbd does not know is not usable, as
// in gRPC.
func (f *floor) health(at place, s corev3.HealthStatus) Health {
	if s >= 0 && s <= corev3.HealthStatus(HealthDegraded) {
		return Health(s)
	}
	if f.byHand {
		f.refuse(at.String()+".health_status", "is %d, which is no health status", s)
	}
	return healthUnrecognized
}

// hashKey is metadata envoy.lb hash_key (gRFC A76).
func hashKey(m *corev3.Metadata) string {
	return m.GetFilterMetadata()["envoy.lb"].GetFields()["hash_key"].GetStringValue()
}

// gaps refuses each gap in the priorities.
func (f *floor) gaps(m *endpointv3.ClusterLoadAssignment) {
	present := make([]uint32, 0, len(f.sums))
	for p := range f.sums {
		present = append(present, p)
	}
	slices.Sort(present)
	next := uint32(0)
	for _, p := range present {
		if p != next {
			i := slices.IndexFunc(m.GetEndpoints(), func(g *endpointv3.LocalityLbEndpoints) bool { return g.GetPriority() == p })
			f.refuse(fmt.Sprintf("endpoints[%d].priority", i), "is %d, and %s: priorities must begin at 0 and leave none out",
				p, missing(next, p-1))
		}
		next = p + 1
	}
}

// implicitDefaults warns of priorities that are written for Envoy's defaults, which
// spread load over priorities before the first has failed as a whole.
func (f *floor) implicitDefaults(m *endpointv3.ClusterLoadAssignment) {
	if !f.byHand || f.stored || len(f.sums) < 2 || m.GetPolicy().GetOverprovisioningFactor() != nil {
		return
	}
	f.warn("endpoints", "hold %d priorities, and a priority is used until it fails as a whole: "+
		"Envoy's defaults, an overprovisioning factor of 1.4 and a panic threshold of 50 %%, are not applied", len(f.sums))
}

// missing says which priorities no locality with a weight has.
func missing(first, last uint32) string {
	if first == last {
		return fmt.Sprintf("no locality with a weight has priority %d", first)
	}
	return fmt.Sprintf("no locality with a weight has priorities %d to %d", first, last)
}
