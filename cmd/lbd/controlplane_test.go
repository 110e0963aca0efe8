package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	rsrc "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// controlPlane is a management server of go-control-plane with load reports, on a fixed loopback
// address.
type controlPlane struct {
	t       testing.TB
	address string
	ads     func(context.Context) discoveryv3.AggregatedDiscoveryServiceServer
	loads   *loadSums

	server *grpc.Server
	cancel context.CancelFunc
	served sync.WaitGroup

	mu    sync.Mutex
	nacks []string
	last  map[string][]string // names of the last request, by stream and type
	asked map[string]int      // how often a name was new in a request, by type and name
}

// newControlPlane starts a server for a cache.
func newControlPlane(t testing.TB, c cache.Cache) *controlPlane {
	t.Helper()
	return newServerOf(t, func(ctx context.Context, p *controlPlane) discoveryv3.AggregatedDiscoveryServiceServer {
		return serverv3.NewServer(ctx, c, serverv3.CallbackFuncs{StreamRequestFunc: p.requested})
	})
}

func newServerOf(t testing.TB, ads func(context.Context, *controlPlane) discoveryv3.AggregatedDiscoveryServiceServer) *controlPlane {
	t.Helper()
	p := &controlPlane{
		t: t, address: lastingAddress(t), loads: &loadSums{of: make(map[string]loadSum)},
		last: make(map[string][]string), asked: make(map[string]int),
	}
	p.ads = func(ctx context.Context) discoveryv3.AggregatedDiscoveryServiceServer { return ads(ctx, p) }
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *controlPlane) requested(stream int64, r *discoveryv3.DiscoveryRequest) error {
	at := fmt.Sprint(stream, r.GetTypeUrl())
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := r.GetErrorDetail(); d != nil {
		p.nacks = append(p.nacks, d.GetMessage())
	}
	for _, name := range r.GetResourceNames() {
		if !slices.Contains(p.last[at], name) {
			p.asked[r.GetTypeUrl()+" "+name]++
		}
	}
	p.last[at] = r.GetResourceNames()
	return nil
}

// askedFor returns the number of subscriptions to a resource.
func (p *controlPlane) askedFor(of rsrc.Type, name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[of+" "+name]
}

// refused reports whether a NACK contains words.
func (p *controlPlane) refused(words string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.nacks, func(n string) bool { return strings.Contains(n, words) })
}

func (p *controlPlane) start() {
	p.t.Helper()
	l := p.listen()
	ctx, cancel := context.WithCancel(context.Background())
	server := grpc.NewServer()
	p.cancel, p.server = cancel, server
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, p.ads(ctx))
	loadv3.RegisterLoadReportingServiceServer(server, p.loads)
	p.served.Go(func() {
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			p.t.Error(err)
		}
	})
}

// listen listens on the address. A process that another test starts has the closed listener open until it is executed.
func (p *controlPlane) listen() net.Listener {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		l, err := net.Listen("tcp", p.address)
		if err == nil {
			return l
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			p.t.Fatal(err)
		}
	}
}

// kill closes all streams and stops listening.
func (p *controlPlane) kill() {
	p.cancel()
	p.server.Stop()
	p.served.Wait()
}

// bootstrapOf writes a bootstrap with servers in the order of fallback.
func bootstrapOf(t testing.TB, planes ...*controlPlane) string {
	t.Helper()
	return writeBootstrap(t, fmt.Sprintf(`{"node":{"id":"test"},"xds_servers":[%s]}`, serversOf(planes...)))
}

// failingBootstrapOf is bootstrapOf for one server, which has the feature
// fail_on_data_errors.
func failingBootstrapOf(t testing.TB, p *controlPlane) string {
	t.Helper()
	return writeBootstrap(t, fmt.Sprintf(
		`{"node":{"id":"test"},"xds_servers":[{"server_uri":%q,"channel_creds":[{"type":"insecure"}],"server_features":["fail_on_data_errors"]}]}`, p.address))
}

func serversOf(planes ...*controlPlane) string {
	var servers []string
	for _, p := range planes {
		servers = append(servers, fmt.Sprintf(`{"server_uri":%q,"channel_creds":[{"type":"insecure"}]}`, p.address))
	}
	return strings.Join(servers, ",")
}

func writeBootstrap(t testing.TB, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	writeFile(t, file, []byte(body))
	return file
}

// oneForAll gives every client the same snapshot.
type oneForAll struct{}

func (oneForAll) ID(*corev3.Node) string { return "all" }

// snapshots is a SnapshotCache, each of whose snapshots has the next version.
type snapshots struct {
	cache.SnapshotCache

	t       testing.TB
	version int
}

func newSnapshots(t testing.TB) *snapshots {
	return &snapshots{SnapshotCache: cache.NewSnapshotCache(false, oneForAll{}, nil), t: t}
}

// set replaces all resources.
func (s *snapshots) set(resources ...types.Resource) {
	s.t.Helper()
	byType := make(map[rsrc.Type][]types.Resource)
	for _, r := range resources {
		of := typeOf(r)
		byType[of] = append(byType[of], r)
	}
	s.version++
	next, err := cache.NewSnapshot(strconv.Itoa(s.version), byType)
	noError(s.t, err)
	noError(s.t, s.SetSnapshot(context.Background(), "all", next))
}

// serveSnapshot starts a server with resources.
func serveSnapshot(t testing.TB, resources ...types.Resource) (*snapshots, *controlPlane) {
	t.Helper()
	plane := newSnapshots(t)
	plane.set(resources...)
	return plane, newControlPlane(t, plane)
}

func typeOf(r types.Resource) rsrc.Type {
	switch r.(type) {
	case *clusterv3.Cluster:
		return rsrc.ClusterType
	case *endpointv3.ClusterLoadAssignment:
		return rsrc.EndpointType
	case *listenerv3.Listener:
		return rsrc.ListenerType
	default:
		return rsrc.RouteType
	}
}

func viaADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

// edsCluster is a cluster whose endpoints are the assignment of its name.
func edsCluster(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: viaADS()},
	}
}

// dnsCluster is the LOGICAL_DNS cluster dns.
func dnsCluster(address string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 "dns",
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS},
		LoadAssignment: &endpointv3.ClusterLoadAssignment{ClusterName: "dns", Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: endpoints(address),
		}}},
	}
}

// reporting is a cluster whose load is reported.
func reporting(c *clusterv3.Cluster) *clusterv3.Cluster {
	c.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}}
	return c
}

func endpoints(addresses ...string) []*endpointv3.LbEndpoint {
	var out []*endpointv3.LbEndpoint
	for _, a := range addresses {
		host, port, _ := net.SplitHostPort(a)
		number, _ := strconv.ParseUint(port, 10, 16)
		out = append(out, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
			}}},
		}}})
	}
	return out
}

func assignmentOf(cluster string, addresses ...string) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: cluster, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		Locality:            &corev3.Locality{Region: "us-east1", Zone: "a"},
		LoadBalancingWeight: wrapperspb.UInt32(1),
		LbEndpoints:         endpoints(addresses...),
	}}}
}

// listenerTo is the Listener of a target, with the routes of another resource.
func listenerTo(t testing.TB, target, routes string) *listenerv3.Listener {
	t.Helper()
	return &listenerv3.Listener{Name: target, ApiListener: &listenerv3.ApiListener{ApiListener: packed(t, &managerv3.HttpConnectionManager{
		RouteSpecifier: &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{RouteConfigName: routes, ConfigSource: viaADS()}},
		HttpFilters: []*managerv3.HttpFilter{{
			Name: "router", ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(t, &routerv3.Router{})},
		}},
	})}}
}

func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	noError(t, err)
	return a
}

func routesOf(name string, routes ...*routev3.Route) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"}, Routes: routes,
	}}}
}

// route leads a path's requests to a cluster, or draws one of several alike.
func route(prefix string, clusters ...string) *routev3.Route {
	weighted := &routev3.WeightedCluster{}
	for _, c := range clusters {
		weighted.Clusters = append(weighted.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: c, Weight: wrapperspb.UInt32(1)})
	}
	return &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: prefix}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted},
		}},
	}
}

// loadSum has the totals of the load reports of a cluster.
type loadSum struct{ issued, succeeded, failed, dropped uint64 }

// loadSums adds up load reports.
type loadSums struct {
	loadv3.UnimplementedLoadReportingServiceServer

	mu sync.Mutex
	of map[string]loadSum // by cluster
}

// StreamLoadStats asks for the loads of all clusters.
func (l *loadSums) StreamLoadStats(s loadv3.LoadReportingService_StreamLoadStatsServer) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	err := s.Send(&loadv3.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(50 * time.Millisecond)})
	for err == nil {
		var r *loadv3.LoadStatsRequest
		if r, err = s.Recv(); err == nil {
			l.add(r)
		}
	}
	return err
}

func (l *loadSums) add(r *loadv3.LoadStatsRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range r.GetClusterStats() {
		sum := l.of[c.GetClusterName()]
		sum.dropped += c.GetTotalDroppedRequests()
		for _, at := range c.GetUpstreamLocalityStats() {
			sum.issued += at.GetTotalIssuedRequests()
			sum.succeeded += at.GetTotalSuccessfulRequests()
			sum.failed += at.GetTotalErrorRequests()
		}
		l.of[c.GetClusterName()] = sum
	}
}

func (l *loadSums) read(cluster string) loadSum {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of[cluster]
}

// startFollowing runs a daemon that follows a management server and does not connect to endpoints,
// and returns its URL.
func startFollowing(t *testing.T, c Config) string {
	t.Helper()
	if c.Connect == "" {
		c.Connect = "none"
	}
	if c.PickWait == 0 {
		c.PickWait = patience
	}
	return "http://" + startServe(t, c)[0]
}

// picked returns the address of a pick, or the code of its error.
func picked(t *testing.T, url, query string) string {
	t.Helper()
	return do(t, "GET", url+"/pick?"+query, "").address()
}

// caller picks a thousand times a second, or as often as the machine can: without a pause, it would take the
// CPU time of what it waits for.
type caller struct {
	t       *testing.T
	made    atomic.Int64
	stopped chan struct{}
	running sync.WaitGroup
}

// call picks until the test ends or stop is called. A failed pick fails the test.
func call(t *testing.T, url, query string) *caller {
	t.Helper()
	c := &caller{t: t, stopped: make(chan struct{})}
	c.running.Go(func() {
		pause := time.NewTicker(time.Millisecond)
		defer pause.Stop()
		for {
			select {
			case <-c.stopped:
				return
			case <-pause.C:
			}
			a, err := try(t.Context(), http.DefaultClient, "GET", url+"/pick?"+query, "")
			switch {
			case t.Context().Err() != nil: // the test has ended
				return
			case err != nil || a.status != http.StatusOK:
				t.Errorf("a pick failed: %+v, %v", a, err)
				return
			}
			c.made.Add(1)
		}
	})
	t.Cleanup(c.stop)
	return c
}

func (c *caller) stop() {
	select {
	case <-c.stopped:
	default:
		close(c.stopped)
	}
	c.running.Wait()
}

// more waits for 20 more picks.
func (c *caller) more() {
	c.t.Helper()
	from := c.made.Load()
	eventually(c.t, "a pick", func() bool { return c.t.Failed() || c.made.Load() > from+20 })
}

// metric returns the value of a series, such as `lbd_cluster_stale{cluster="orders"}`; empty if
// it does not exist.
func metric(t *testing.T, url, series string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (.*)$`).FindStringSubmatch(do(t, "GET", url+"/metrics", "").body)
	if found == nil {
		return ""
	}
	return found[1]
}

// untilMetric waits for a value of a series.
func untilMetric(t *testing.T, url, series, value string) {
	t.Helper()
	eventually(t, series+" "+value, func() bool { return metric(t, url, series) == value })
}

// expectEvent checks that the JSON of an event of a type contains a text.
func expectEvent(t *testing.T, url, eventType, text string) {
	t.Helper()
	expect(t, http.StatusOK, "GET", url+"/v1/events?type="+eventType, "", text)
}
