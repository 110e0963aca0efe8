package parity_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// world has the content of a scenario's resources, in a form that is easy to change.
type world struct {
	cluster    string
	service    string // EDS service name; empty if it is the cluster's
	policy     *lbPolicy
	asked      *clusterv3.Cluster // the fields that choose the policy
	thresholds []threshold
	drops      []drop
	localities []*locality
	flaw       *flaw // breaks a rule of the resources, if set
}

type threshold struct {
	high bool
	max  *uint32 // nil is absent
}

type drop struct {
	category    string
	numerator   uint32
	denominator typev3.FractionalPercent_DenominatorType
}

type locality struct {
	zone      int
	priority  uint32
	weight    uint32 // 0 is absent
	endpoints []*endpoint
}

type endpoint struct {
	upstreams []*upstream // its address and its additional ones
	health    corev3.HealthStatus
	weight    uint32 // 0 is absent
}

func (l *locality) upstreams() (all []*upstream) {
	for _, e := range l.endpoints {
		all = append(all, e.upstreams...)
	}
	return all
}

// compact renumbers the priorities without gaps.
func (w *world) compact() {
	used := make(map[uint32]bool)
	for _, l := range w.localities {
		if l.weight > 0 {
			used[l.priority] = true
		}
	}
	order := slices.Sorted(maps.Keys(used))
	for _, l := range w.localities {
		if i := slices.Index(order, l.priority); i >= 0 {
			l.priority = uint32(i)
		}
	}
}

// ambiguous reports whether a locality is in several priorities.
func ambiguous(a *endpointv3.ClusterLoadAssignment) bool {
	seen := make(map[string]bool)
	for _, g := range a.GetEndpoints() {
		if seen[g.GetLocality().GetZone()] {
			return true
		}
		seen[g.GetLocality().GetZone()] = true
	}
	return false
}

func (w *world) endpoints() []*endpoint {
	var all []*endpoint
	for _, l := range w.localities {
		all = append(all, l.endpoints...)
	}
	return all
}

func (e *endpoint) usable() bool {
	return e.health == corev3.HealthStatus_HEALTHY || e.health == corev3.HealthStatus_UNKNOWN
}

// aggregate is a cluster of several leaves.
type aggregate struct {
	name   string
	policy *lbPolicy
	asked  *clusterv3.Cluster
	// nested is true if all leaves except the first are below a second aggregate, which
	// names the first again.
	nested bool
}

func (a *aggregate) nestedName() string { return a.name + "-nested" }

// resources returns the aggregate's own clusters.
func (a *aggregate) resources(leaves []*world) []*clusterv3.Cluster {
	names := a.names(leaves)
	own := []*clusterv3.Cluster{a.resource(a.name, names[0])}
	if a.nested {
		own = append(own, a.resource(a.nestedName(), names[1]))
	}
	return own
}

// names are the leaves of the aggregate, and those of the one nested in it.
func (a *aggregate) names(leaves []*world) [2][]string {
	var all []string
	for _, w := range leaves {
		all = append(all, w.cluster)
	}
	if !a.nested {
		return [2][]string{all, nil}
	}
	return [2][]string{{all[0], a.nestedName()}, append(slices.Clone(all[1:]), all[0])}
}

func (a *aggregate) resource(name string, of []string) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name: name,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: packed(&aggregatev3.ClusterConfig{Clusters: of}),
		}},
	}
	proto.Merge(c, a.asked)
	return c
}

func (w *world) clusterResource() *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 w.cluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads, ServiceName: w.service},
	}
	proto.Merge(c, w.asked)
	for _, t := range w.thresholds {
		th := &clusterv3.CircuitBreakers_Thresholds{}
		if t.high {
			th.Priority = corev3.RoutingPriority_HIGH
		}
		if t.max != nil {
			th.MaxRequests = wrapperspb.UInt32(*t.max)
		}
		if c.CircuitBreakers == nil {
			c.CircuitBreakers = &clusterv3.CircuitBreakers{}
		}
		c.CircuitBreakers.Thresholds = append(c.CircuitBreakers.Thresholds, th)
	}
	return c
}

// assignmentName is the name of the assignment.
func (w *world) assignmentName() string { return cmp.Or(w.service, w.cluster) }

// assignmentOf is the name of a cluster's assignment.
func assignmentOf(c *clusterv3.Cluster) string {
	return cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())
}

func (w *world) assignmentResource() *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: w.assignmentName()}
	for _, d := range w.drops {
		if a.Policy == nil {
			a.Policy = &endpointv3.ClusterLoadAssignment_Policy{}
		}
		a.Policy.DropOverloads = append(a.Policy.DropOverloads, &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			Category:       d.category,
			DropPercentage: &typev3.FractionalPercent{Numerator: d.numerator, Denominator: d.denominator},
		})
	}
	for _, l := range w.localities {
		group := &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{Region: "r", Zone: fmt.Sprintf("z%d", l.zone)},
			Priority: l.priority,
		}
		if l.weight > 0 {
			group.LoadBalancingWeight = wrapperspb.UInt32(l.weight)
		}
		for _, e := range l.endpoints {
			group.LbEndpoints = append(group.LbEndpoints, e.resource())
		}
		a.Endpoints = append(a.Endpoints, group)
	}
	return a
}

func (e *endpoint) resource() *endpointv3.LbEndpoint {
	ep := &endpointv3.Endpoint{Address: socket(e.upstreams[0])}
	for _, u := range e.upstreams[1:] {
		ep.AdditionalAddresses = append(ep.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{Address: socket(u)})
	}
	m := &endpointv3.LbEndpoint{
		HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: ep},
		HealthStatus:   e.health,
	}
	if e.weight > 0 {
		m.LoadBalancingWeight = wrapperspb.UInt32(e.weight)
	}
	return m
}

func socket(u *upstream) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address:       u.host(),
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: u.port()},
	}}}
}

// flaw breaks one rule of the resources.
type flaw struct {
	name          string
	needsEndpoint bool // in the first locality
	apply         func(*clusterv3.Cluster, *endpointv3.ClusterLoadAssignment)
}

// fits reports whether an assignment has what the flaw breaks.
func (f *flaw) fits(a *endpointv3.ClusterLoadAssignment) bool {
	groups := a.GetEndpoints()
	return len(groups) > 0 && (!f.needsEndpoint || len(groups[0].GetLbEndpoints()) > 0)
}

// resources returns the world's Cluster and assignment, with its flaw if that still fits.
func (w *world) resources() (*clusterv3.Cluster, *endpointv3.ClusterLoadAssignment) {
	c, a := w.clusterResource(), w.assignmentResource()
	if w.flaw != nil && w.flaw.fits(a) {
		w.flaw.apply(c, a)
	}
	return c, a
}
