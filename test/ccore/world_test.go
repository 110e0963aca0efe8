package ccore_test

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// world is an aggregate as the management server has it, and which endpoints run.
type world struct {
	name string
	// aggregates are what each aggregate is made of, by name; the one called name
	// is the root.
	aggregates map[string][]string
	leaves     map[string]*leaf
	// keeps is true where a Cluster stays in use that is deleted (gRFC A88).
	keeps bool
	// policy is the root's own, which is to be ignored.
	policy clusterv3.Cluster_LbPolicy
}

// leaf is a cluster with endpoints.
type clusterPolicy = clusterv3.Cluster_LbPolicy

type leaf struct {
	name    string
	policy  clusterv3.Cluster_LbPolicy
	deleted bool // the management server does not have the Cluster
	missing bool // it never had the ClusterLoadAssignment
	empty   bool // the ClusterLoadAssignment has no endpoints

	priorities [][]*upstream
}

// demand is what picks must come to.
type demand struct {
	leaf      *leaf // nil where all picks fail
	endpoints []string
	skipped   []string // leaves
}

// order lists what an aggregate is made of, depth first, each once (gRFC A37, A75).
// A cluster that does not exist is a leaf.
func (w *world) order(name string, seen map[string]bool) (names []string) {
	for _, child := range w.aggregates[name] {
		if seen[child] {
			continue
		}
		seen[child] = true
		if w.aggregates[child] == nil {
			names = append(names, child)
		} else {
			names = append(names, w.order(child, seen)...)
		}
	}
	return names
}

// demand is reasoned from the resources and from which endpoints run: the first
// priority with an endpoint that runs, of the first leaf that has one.
func (w *world) demand() demand {
	var d demand
	for _, name := range w.order(w.name, map[string]bool{w.name: true}) {
		l := w.leaves[name]
		if l == nil || l.deleted && !w.keeps || l.missing {
			d.skipped = append(d.skipped, name)
			continue
		}
		for _, p := range l.priorities {
			for _, u := range p {
				if u.up() && !l.empty && d.leaf == nil {
					d.endpoints = append(d.endpoints, u.address())
				}
			}
			if len(d.endpoints) > 0 && d.leaf == nil {
				d.leaf = l
			}
		}
	}
	slices.Sort(d.endpoints)
	return d
}

// resources writes the world as xDS.
func (w *world) resources() (listener types.Resource, clusters, assignments []types.Resource) {
	for name, of := range w.aggregates {
		clusters = append(clusters, &clusterv3.Cluster{
			Name: name, LbPolicy: w.policy,
			ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
				Name: "envoy.clusters.aggregate", TypedConfig: packed(&aggregatev3.ClusterConfig{Clusters: of}),
			}},
		})
	}
	for _, l := range w.leaves {
		if !l.deleted {
			clusters = append(clusters, &clusterv3.Cluster{
				Name: l.name, LbPolicy: l.policy,
				ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
				EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads},
			})
		}
		if !l.missing {
			assignments = append(assignments, l.assignment())
		}
	}
	return w.listener(), clusters, assignments
}

var ads = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

func (l *leaf) assignment() *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: l.name}
	if l.empty {
		return a
	}
	for i, p := range l.priorities {
		group := &endpointv3.LocalityLbEndpoints{
			Locality: &corev3.Locality{Zone: fmt.Sprintf("%s-%d", l.name, i)}, Priority: uint32(i), LoadBalancingWeight: wrapperspb.UInt32(1),
		}
		for _, u := range p {
			group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address: u.host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: u.port},
					}}},
				}},
			})
		}
		a.Endpoints = append(a.Endpoints, group)
	}
	return a
}

// keyHeader is the header whose value the route hashes.
const keyHeader = "ccore-key"

// listener leads every call to the root, and hashes calls by their key.
func (w *world) listener() types.Resource {
	route := &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: w.name},
			HashPolicy: []*routev3.RouteAction_HashPolicy{{PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{
				Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: keyHeader},
			}}},
		}},
	}
	return &listenerv3.Listener{Name: w.name, ApiListener: &listenerv3.ApiListener{ApiListener: packed(&managerv3.HttpConnectionManager{
		HttpFilters: []*managerv3.HttpFilter{{
			Name: "router", ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(&routerv3.Router{})},
		}},
		RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name:         w.name,
			VirtualHosts: []*routev3.VirtualHost{{Name: w.name, Domains: []string{"*"}, Routes: []*routev3.Route{route}}},
		}},
	})}}
}

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // none of the messages made here has invalid UTF-8
	}
	return a
}
