package client

import (
	"fmt"

	xdstypev3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func pack(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

func clusterProto(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{
			EdsConfig:   &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}},
			ServiceName: name,
		},
	}
}

// cluster is valid. A service name makes a different one with the same name.
func cluster(name string, service ...string) *anypb.Any {
	c := clusterProto(name)
	for _, s := range service {
		c.EdsClusterConfig.ServiceName = s
	}
	return pack(c)
}

// badCluster has an unsupported policy.
func badCluster(name string) *anypb.Any {
	c := clusterProto(name)
	c.LbPolicy = clusterv3.Cluster_MAGLEV
	return pack(c)
}

func assignmentProto(name string, endpoints int, first uint32) *endpointv3.ClusterLoadAssignment {
	a := &endpointv3.ClusterLoadAssignment{ClusterName: name}
	l := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{Zone: "a"},
		LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	for i := range endpoints {
		l.LbEndpoints = append(l.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address:       fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255),
					PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: first},
				}}},
			}},
		})
	}
	a.Endpoints = append(a.Endpoints, l)
	return a
}

func assignment(name string, port uint32) *anypb.Any { return pack(assignmentProto(name, 1, port)) }

// namedPolicy is a cluster with a policy of a name.
func namedPolicy(name, policy string) *anypb.Any { return configuredPolicy(name, policy, nil) }

func configuredPolicy(name, policy string, value *structpb.Struct) *anypb.Any {
	c := clusterProto(name)
	config := pack(&xdstypev3.TypedStruct{TypeUrl: "type.googleapis.com/" + policy, Value: value})
	c.LoadBalancingPolicy = &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{
		{TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: policy, TypedConfig: config}},
	}}
	return pack(c)
}

// listener takes its routes from RDS.
func listener(name, routes string) *anypb.Any {
	hcm := &hcmv3.HttpConnectionManager{
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			RouteConfigName: routes,
			ConfigSource:    &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{Name: "router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})}}},
	}
	return pack(&listenerv3.Listener{Name: name, ApiListener: &listenerv3.ApiListener{ApiListener: pack(hcm)}})
}

// routes select a cluster.
func routes(name, cluster string) *anypb.Any {
	return pack(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
		}},
	}}})
}
