package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// target is the target that lbd hosts: xds:///shop.
const target = "shop"

// services are the clusters with their numbers of upstreams.
var services = map[string]int{"orders": 3, "orders-canary": 1, "cart": 2}

// world is the configuration that the management server serves.
type world struct {
	upstreams map[string][]net.Addr // by cluster; fixed after newWorld

	mu      sync.Mutex
	version int
	canary  uint32 // the share of orders that the canary gets, in percent
	bad     bool   // whether cart breaks a rule
	deleted bool   // whether the Cluster cart is not sent
}

// newWorld starts the upstreams, which run until ctx ends.
func newWorld(ctx context.Context, group *errgroup.Group) (*world, error) {
	w := &world{upstreams: make(map[string][]net.Addr), canary: 10}
	for name, n := range services {
		for range n {
			var config net.ListenConfig
			l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			w.upstreams[name] = append(w.upstreams[name], l.Addr())
			s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(out, "%s at %s\n", name, l.Addr())
			})}
			stop := context.AfterFunc(ctx, func() { _ = s.Close() })
			group.Go(func() error {
				defer stop()
				_ = s.Serve(l) // it ends with ctx
				return nil
			})
		}
	}
	return w, nil
}

// snapshot returns the world for go-control-plane's cache.
func (w *world) snapshot() (*cache.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	var clusters, assignments []types.Resource
	for name, addresses := range w.upstreams {
		if !w.deleted || name != "cart" {
			clusters = append(clusters, w.cluster(name))
		}
		assignments = append(assignments, assignment(name, addresses))
	}
	l, err := listener()
	if err != nil {
		return nil, err
	}
	return cache.NewSnapshot(strconv.Itoa(w.version), map[resource.Type][]types.Resource{
		resource.ListenerType: {l},
		resource.RouteType:    {w.routes()},
		resource.ClusterType:  clusters,
		resource.EndpointType: assignments,
	})
}

func listener() (*listenerv3.Listener, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := anypb.New(&managerv3.HttpConnectionManager{
		RouteSpecifier: &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{
			RouteConfigName: "shop-routes",
			ConfigSource:    ads(),
		}},
		HttpFilters: []*managerv3.HttpFilter{{
			Name:       "router",
			ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
	})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{Name: target, ApiListener: &listenerv3.ApiListener{ApiListener: manager}}, nil
}

func (w *world) routes() *routev3.RouteConfiguration {
	prefix := func(p string) *routev3.RouteMatch {
		return &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: p}}
	}
	weighted := &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{
		{Name: "orders", Weight: wrapperspb.UInt32(100 - w.canary)},
		{Name: "orders-canary", Weight: wrapperspb.UInt32(w.canary)},
	}}
	return &routev3.RouteConfiguration{
		Name: "shop-routes",
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "shop",
			Domains: []string{"*"},
			Routes: []*routev3.Route{
				{Match: prefix("/cart/"), Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: "cart"},
				}}},
				{Match: prefix("/"), Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted},
				}}},
			},
		}},
	}
}

// cluster returns an EDS cluster with load reports.
func (w *world) cluster(name string) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
		LrsServer:            &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{}},
	}
	if w.bad && name == "cart" {
		c.LbPolicy = clusterv3.Cluster_MAGLEV
	}
	return proto.CloneOf(c)
}

func assignment(name string, addresses []net.Addr) *endpointv3.ClusterLoadAssignment {
	locality := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{Region: "us-east1", Zone: "a"},
		LoadBalancingWeight: wrapperspb.UInt32(1),
	}
	for _, a := range addresses {
		host, port, _ := net.SplitHostPort(a.String())
		number, _ := strconv.ParseUint(port, 10, 16)
		locality.LbEndpoints = append(locality.LbEndpoints, &endpointv3.LbEndpoint{
			HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
				Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
				}},
			}}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{locality}}
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}
