package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	xdsresource "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/anypb"
)

// grpcNode is the node ID of the channel, and grpcTarget the name of its target.
const (
	grpcNode   = "bench"
	grpcTarget = "bench-target"
)

// GRPC is a channel of grpc-go that follows a management server. Its endpoints are
// connections that only say that they are ready.
type GRPC struct {
	server *grpc.Server
	cancel context.CancelFunc
	conn   *grpc.ClientConn
	picker balancer.Picker
}

// StartGRPC returns a channel whose endpoints are all READY.
func StartGRPC(ctx context.Context, a *endpointv3.ClusterLoadAssignment) (*GRPC, error) {
	endpoints := 0
	for _, l := range a.GetEndpoints() {
		endpoints += len(l.GetLbEndpoints())
	}
	address, g, err := serveResources(a)
	if err != nil {
		return nil, err
	}
	builder, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil,
		`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}], "node": {"id": %q}}`, address, grpcNode))
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("bootstrap grpc: %w", err)
	}
	connections := &readyConnections{}
	g.conn, err = grpc.NewClient("xds:///"+grpcTarget, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithResolvers(builder), grpc.WithNoProxy(), grpc.WithIdleTimeout(0), grpc.WithContextDialer(connections.dial),
		grpc.WithReadBufferSize(0), grpc.WithWriteBufferSize(0))
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("open grpc's channel: %w", err)
	}
	taps.reset()
	g.conn.Connect()
	if g.picker, err = taps.await(ctx, endpoints); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Close closes the channel and the management server.
func (g *GRPC) Close() {
	if g.conn != nil {
		_ = g.conn.Close() // only returns an error if it is closed already
	}
	g.server.Stop()
	g.cancel()
}

// Pick picks an endpoint, and ends the request at once. A dropped request is no error.
func (g *GRPC) Pick(info balancer.PickInfo) error {
	r, err := g.picker.Pick(info)
	if err != nil {
		if s, ok := status.FromError(err); ok && s.Message() == "RPC is dropped" {
			return nil
		}
		return err
	}
	if r.Done != nil {
		r.Done(balancer.DoneInfo{})
	}
	return nil
}

// serveResources starts a management server.
func serveResources(a *endpointv3.ClusterLoadAssignment) (address string, g *GRPC, err error) {
	cluster := ClusterResource()
	cluster.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}}
	listener, err := grpcListener()
	if err != nil {
		return "", nil, err
	}
	snapshot, err := cache.NewSnapshot("1", map[xdsresource.Type][]types.Resource{
		xdsresource.ListenerType: {listener}, xdsresource.ClusterType: {cluster}, xdsresource.EndpointType: {a},
	})
	if err != nil {
		return "", nil, fmt.Errorf("make the resources: %w", err)
	}
	resources := cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	if err := resources.SetSnapshot(ctx, grpcNode, snapshot); err != nil {
		cancel()
		return "", nil, fmt.Errorf("serve the resources: %w", err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	g = &GRPC{server: grpc.NewServer(), cancel: cancel}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g.server, serverv3.NewServer(ctx, resources, serverv3.CallbackFuncs{}))
	loadstatsv3.RegisterLoadReportingServiceServer(g.server, silentReports{})
	go func() { _ = g.server.Serve(l) }() // ends with Close
	return l.Addr().String(), g, nil
}

func grpcListener() (*listenerv3.Listener, error) {
	router, err := anypb.New(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := anypb.New(&managerv3.HttpConnectionManager{
		RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: "routes",
			VirtualHosts: []*routev3.VirtualHost{{Name: "all", Domains: []string{"*"}, Routes: []*routev3.Route{{
				Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: Cluster}}},
			}}}},
		}},
		HttpFilters: []*managerv3.HttpFilter{{Name: "router", ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: router}}},
	})
	if err != nil {
		return nil, err
	}
	return &listenerv3.Listener{Name: grpcTarget, ApiListener: &listenerv3.ApiListener{ApiListener: manager}}, nil
}

// silentReports is a load reporting service that asks for no reports: the client counts,
// and sends nothing.
type silentReports struct{}

func (silentReports) StreamLoadStats(s loadstatsv3.LoadReportingService_StreamLoadStatsServer) error {
	for {
		if _, err := s.Recv(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// clusterPolicy is the policy at the top of a cluster's tree in grpc-go. It is registered
// again with a builder that also keeps the pickers.
const clusterPolicy = "cds_experimental"

func init() { balancer.Register(tapBuilder{balancer.Get(clusterPolicy)}) }

type tapBuilder struct{ balancer.Builder }

func (b tapBuilder) ParseConfig(js json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	parser, ok := b.Builder.(balancer.ConfigParser)
	if !ok {
		return nil, fmt.Errorf("policy %s has no config", b.Name())
	}
	return parser.ParseConfig(js)
}

func (b tapBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return b.Builder.Build(&tap{ClientConn: cc}, opts)
}

// tap passes a policy's calls to its parent, and keeps the last picker.
type tap struct {
	balancer.ClientConn
}

func (t *tap) UpdateState(s balancer.State) {
	if s.ConnectivityState == connectivity.Ready {
		taps.set(s.Picker)
	}
	t.ClientConn.UpdateState(s)
}

// taps has the last picker. There is one channel at a time.
var taps lastPicker

type lastPicker struct {
	mu      sync.Mutex
	picker  balancer.Picker
	version int
}

func (l *lastPicker) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.picker, l.version = nil, 0
}

func (l *lastPicker) set(p balancer.Picker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.picker = p
	l.version++
}

func (l *lastPicker) get() (balancer.Picker, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.picker, l.version
}

// quiet is how long there must be no new picker before all endpoints count as READY.
const quiet = 500 * time.Millisecond

// await waits until the pickers of n endpoints have been published. A picker is published
// for each endpoint that becomes READY.
func (l *lastPicker) await(ctx context.Context, n int) (balancer.Picker, error) {
	last := -1
	for {
		p, version := l.get()
		if p != nil && version == last && version >= n {
			return p, nil
		}
		last = version
		select {
		case <-time.After(quiet):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until grpc-go's %d endpoints are ready (%d pickers): %w", n, version, ctx.Err())
		}
	}
}

// readyConnections dials the management server, and for endpoints a [readyConn].
type readyConnections struct{}

func (*readyConnections) dial(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip.IsLoopback() {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	}
	return newReadyConn(), nil
}

// readyConn is a connection to an HTTP/2 server that sends its settings and nothing more.
// It costs no descriptor.
type readyConn struct {
	settings chan []byte
	closed   chan struct{}
	once     sync.Once
}

// emptySettings is an HTTP/2 SETTINGS frame without settings.
var emptySettings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

func newReadyConn() *readyConn {
	c := &readyConn{settings: make(chan []byte, 1), closed: make(chan struct{})}
	c.settings <- emptySettings
	return c
}

func (c *readyConn) Read(b []byte) (int, error) {
	select {
	case frame := <-c.settings:
		n := copy(b, frame)
		if n < len(frame) {
			c.settings <- frame[n:]
		}
		return n, nil
	case <-c.closed:
		return 0, io.EOF
	}
}

func (c *readyConn) Write(b []byte) (int, error) { return len(b), nil }

func (c *readyConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *readyConn) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (c *readyConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }
func (c *readyConn) SetDeadline(time.Time) error      { return nil }
func (c *readyConn) SetReadDeadline(time.Time) error  { return nil }
func (c *readyConn) SetWriteDeadline(time.Time) error { return nil }
