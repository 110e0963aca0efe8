package peer

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Cluster is the name of the cluster that lbd and its peers pick from.
const Cluster = "orders"

// maxRequests is a circuit breaker that is never full.
const maxRequests = 1 << 30

// ads is the source of endpoints of grpc-go.
var ads = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

// ClusterResource is a Cluster with a circuit breaker.
func ClusterResource() *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 Cluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads},
		CircuitBreakers: &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{
			{MaxRequests: wrapperspb.UInt32(maxRequests)},
		}},
	}
}

// Assignment is a ClusterLoadAssignment of localities with weights 1, 2, 3, … and so many
// endpoints each.
func Assignment(localities, each int) *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: Cluster}
	for i := range localities {
		l := &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: "region", Zone: fmt.Sprintf("zone-%d", i)},
			LoadBalancingWeight: wrapperspb.UInt32(uint32(i + 1)),
		}
		for j := range each {
			l.LbEndpoints = append(l.LbEndpoints, Endpoint(fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, j&255), uint32(8000+j>>8)))
		}
		a.Endpoints = append(a.Endpoints, l)
	}
	return a
}

// WithDrop adds a drop category that drops one pick in a million.
func WithDrop(a *endpointv3.ClusterLoadAssignment) *endpointv3.ClusterLoadAssignment {
	a.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
		Category:       "throttle",
		DropPercentage: &typev3.FractionalPercent{Numerator: 1, Denominator: typev3.FractionalPercent_MILLION},
	}}}
	return a
}

// Endpoint is an endpoint at an address.
func Endpoint(host string, port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}},
	}}}
}
