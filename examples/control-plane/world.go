package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // in the Listener
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// target is the target that lbd hosts: xds:///shop.
const target = "shop"

// services are the clusters with their numbers of upstreams.
var services = map[string]int{"orders": 3, "orders-canary": 1, "cart": 2}

// world is the configuration that the management server serves.
type world struct {
	upstreams map[string][]netip.AddrPort // by cluster; fixed after newWorld

	mu      sync.Mutex
	version int
	canary  uint32 // the share of orders that the canary gets, in percent
	bad     bool   // whether cart breaks a rule
	deleted bool   // whether the Cluster cart is not sent
}

// newWorld starts the upstreams, which run until ctx ends.
func newWorld(ctx context.Context, group *errgroup.Group) (*world, error) {
	w := &world{upstreams: make(map[string][]netip.AddrPort), canary: 10}
	for name, n := range services {
		for range n {
			var config net.ListenConfig
			l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			address, err := netip.ParseAddrPort(l.Addr().String())
			if err != nil {
				return nil, err
			}
			w.upstreams[name] = append(w.upstreams[name], address)
			s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(out, "%s at %s\n", name, address)
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

// The resources that the server sends.
const (
	listenerJSON = `{"name": "shop", "api_listener": {"api_listener": {
		"@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"rds": {"route_config_name": "shop-routes", "config_source": {"ads": {}}},
		"http_filters": [{"name": "router", "typed_config": {
			"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}]}}}`
	routesJSON = `{"name": "shop-routes", "virtual_hosts": [{"name": "shop", "domains": ["*"], "routes": [
		{"match": {"prefix": "/cart/"}, "route": {"cluster": "cart"}},
		{"match": {"prefix": "/"}, "route": {"weighted_clusters": {"clusters": [
			{"name": "orders", "weight": %d}, {"name": "orders-canary", "weight": %d}]}}}]}]}`
	clusterJSON = `{"name": %q, "type": "EDS", "lb_policy": %q,
		"eds_cluster_config": {"eds_config": {"ads": {}}}, "lrs_server": {"self": {}}}`
	assignmentJSON = `{"cluster_name": %q, "endpoints": [
		{"locality": {"region": "us-east1", "zone": "a"}, "load_balancing_weight": 1, "lb_endpoints": [%s]}]}`
	endpointJSON = `{"endpoint": {"address": {"socket_address": {"address": %q, "port_value": %d}}}}`
)

// snapshot returns the world for go-control-plane's cache.
func (w *world) snapshot() (*cache.Snapshot, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	resources := map[resource.Type][]types.Resource{}
	var problems []error
	add := func(t resource.Type, m proto.Message, format string, args ...any) {
		problems = append(problems, protojson.Unmarshal(fmt.Appendf(nil, format, args...), m))
		resources[t] = append(resources[t], m)
	}
	add(resource.ListenerType, &listenerv3.Listener{}, listenerJSON)
	add(resource.RouteType, &routev3.RouteConfiguration{}, routesJSON, 100-w.canary, w.canary)
	for name, addresses := range w.upstreams {
		if !w.deleted || name != "cart" {
			policy := "ROUND_ROBIN"
			if w.bad && name == "cart" {
				policy = "MAGLEV"
			}
			add(resource.ClusterType, &clusterv3.Cluster{}, clusterJSON, name, policy)
		}
		var endpoints []string
		for _, a := range addresses {
			endpoints = append(endpoints, fmt.Sprintf(endpointJSON, a.Addr().String(), a.Port()))
		}
		add(resource.EndpointType, &endpointv3.ClusterLoadAssignment{}, assignmentJSON, name, strings.Join(endpoints, ","))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return cache.NewSnapshot(strconv.Itoa(w.version), resources)
}
