package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	xdstypev3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits, on the bubble's clock, for what is to come.
const patience = time.Hour

// await returns what comes.
func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s came", what)
		panic("unreachable")
	}
}

// nothing sees that nothing is there, now that all is quiet.
func nothing[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	synctest.Wait()
	select {
	case v := <-c:
		t.Fatalf("%s came: %v", what, v)
	default:
	}
}

// world is a client and the servers around it, in a bubble.
type world struct {
	t       *testing.T
	servers map[string]*scripted
	client  *Client
	updates chan []Update
	events  chan Event
	block   chan struct{} // where not nil, OnUpdate takes one from it before it returns
}

// play runs a test in a bubble, with a client that uses servers: the bootstrap is
// what they are called in order, or JSON.
func play(t *testing.T, config string, test func(t *testing.T, w *world), change ...func(*world, *Options)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, servers: map[string]*scripted{}, updates: make(chan []Update, 10000), events: make(chan Event, 10000)}
		if !strings.HasPrefix(config, "{") {
			config = fmt.Sprintf(`{"node":{"id":"test"},"xds_servers":[%s]}`, serversJSON(strings.Fields(config)...))
		}
		b, err := bootstrap.Parse([]byte(config), bootstrap.Options{Version: "1"})
		if err != nil {
			t.Fatal(err)
		}
		o := Options{
			Bootstrap: b,
			Events:    func(e Event) { w.events <- e },
			OnUpdate: func(u []Update) {
				w.updates <- u
				if w.block != nil {
					<-w.block
				}
			},
			dial: []grpc.DialOption{grpc.WithContextDialer(w.dial)},
			draw: func() float64 { return 0.5 },
		}
		for _, name := range []string{"one", "two", "three"} {
			w.servers[name] = newScripted(t)
		}
		for _, f := range change {
			f(w, &o)
		}
		if w.client, err = New(o); err != nil {
			t.Fatal(err)
		}
		defer func() {
			w.client.Close()
			for _, s := range w.servers {
				s.kill()
			}
		}()
		test(t, w)
	})
}

func serversJSON(names ...string) string {
	var list []string
	for _, n := range names {
		name, features, _ := strings.Cut(n, ":")
		s := fmt.Sprintf(`{"server_uri":"passthrough:///%s","channel_creds":[{"type":"insecure"}]`, name)
		if features != "" {
			s += fmt.Sprintf(`,"server_features":[%q]`, features)
		}
		list = append(list, s+"}")
	}
	return strings.Join(list, ",")
}

func (w *world) dial(ctx context.Context, name string) (net.Conn, error) {
	return w.servers[name].dial(ctx)
}

// want wants clusters; names that begin with "-" are dropped.
func (w *world) want(t resource.Type, names ...string) {
	var add, drop []resource.Key
	for _, n := range names {
		if name, ok := strings.CutPrefix(n, "-"); ok {
			drop = append(drop, resource.Key{Type: t, Name: name})
		} else {
			add = append(add, resource.Key{Type: t, Name: n})
		}
	}
	w.client.Want(add, drop)
}

// told takes the next batch and describes it: for each, in order of name,
// "name=version" with a value, "name: kind of error", with "ambient " before it where
// it is.
func (w *world) told() string {
	w.t.Helper()
	return describe(await(w.t, w.updates, "update"))
}

func describe(batch []Update) string {
	var words []string
	for _, u := range batch {
		var not *NotFoundError
		var rejected *RejectedError
		var unreachable *UnreachableError
		s := u.Key.Name
		switch {
		case u.Err == nil:
			s += "=" + u.Version
			if u.Raw == nil || u.Cluster == nil && u.Assignment == nil && u.Listener == nil && u.Routes == nil {
				s += " without a value"
			}
		case errors.As(u.Err, &not) && not.Expired:
			s += ": expired"
		case errors.As(u.Err, &not):
			s += ": not found"
		case errors.As(u.Err, &rejected):
			s += ": rejected"
		case errors.As(u.Err, &unreachable):
			s += ": unreachable"
		default:
			s += ": " + u.Err.Error()
		}
		if u.Ambient {
			s = "ambient " + s
		}
		if u.Err != nil && (u.Raw != nil || u.Cluster != nil) {
			s += " with a value"
		}
		words = append(words, s)
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func (w *world) expectTold(want string) {
	w.t.Helper()
	if got := w.told(); got != want {
		w.t.Fatalf("told %q, want %q", got, want)
	}
}

func (w *world) expectNothingTold() {
	w.t.Helper()
	synctest.Wait()
	select {
	case u := <-w.updates:
		w.t.Fatalf("told %q, want nothing", describe(u))
	default:
	}
}

// event takes events until one of a type.
func event[E Event](w *world) E {
	w.t.Helper()
	for {
		if e, ok := await(w.t, w.events, fmt.Sprintf("%T", *new(E))).(E); ok {
			return e
		}
	}
}

// state returns the status of a resource.
func (w *world) state(t resource.Type, name string) ResourceStatus {
	w.t.Helper()
	for _, r := range w.client.Status().Resources {
		if r.Key == (resource.Key{Type: t, Name: name}) {
			return r
		}
	}
	return ResourceStatus{}
}

// scripted is a management server that does what the test says: a real gRPC server
// on a connection in memory.
type scripted struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	streams chan *conversation

	mu       sync.Mutex
	down     error // what dialing it says
	dials    int
	listener *bufconn.Listener
	server   *grpc.Server
	stopped  chan struct{}
	handle   func(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error // takes the place of a conversation
}

func newScripted(t *testing.T) *scripted {
	s := &scripted{t: t, streams: make(chan *conversation, 1000)}
	s.start()
	return s
}

func (s *scripted) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = nil
	s.listener = bufconn.Listen(1 << 20)
	s.server = grpc.NewServer(grpc.MaxRecvMsgSize(64<<20), grpc.ForceServerCodecV2(garbling{encoding.GetCodecV2(proto.Name)}))
	s.stopped = make(chan struct{})
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.server, s)
	server, listener, stopped := s.server, s.listener, s.stopped
	go func() {
		defer close(stopped)
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.t.Error(err)
		}
	}()
}

// kill ends it, with its connections.
func (s *scripted) kill() {
	s.mu.Lock()
	server, stopped := s.server, s.stopped
	if s.down == nil {
		s.down = errors.New("nobody listens")
	}
	s.mu.Unlock()
	server.Stop()
	<-stopped
}

func (s *scripted) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	listener, down := s.listener, s.down
	s.dials++
	s.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return listener.DialContext(ctx)
}

func (s *scripted) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s.mu.Lock()
	handle := s.handle
	s.mu.Unlock()
	if handle != nil {
		return handle(stream)
	}
	c := &conversation{
		t: s.t, stream: stream, opened: time.Now(),
		requests: make(chan *discoveryv3.DiscoveryRequest, 10000), end: make(chan error, 1),
	}
	s.streams <- c
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			c.requests <- r
		}
	}()
	select {
	case err := <-c.end:
		return err
	case <-ended:
		return nil
	}
}

// accept returns the next stream.
func (s *scripted) accept() *conversation {
	s.t.Helper()
	return await(s.t, s.streams, "stream")
}

// conversation is one stream, as the server sees it.
type conversation struct {
	t        *testing.T
	stream   discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	opened   time.Time
	requests chan *discoveryv3.DiscoveryRequest
	end      chan error
}

// hear takes the next request and describes it:
// "node Cluster names version nonce NACK".
func (c *conversation) hear() string {
	c.t.Helper()
	return describeRequest(await(c.t, c.requests, "request"))
}

func describeRequest(r *discoveryv3.DiscoveryRequest) string {
	_, kind, _ := strings.Cut(r.GetTypeUrl(), ".v3.")
	s := fmt.Sprintf("%s %v version=%q nonce=%q", kind, r.GetResourceNames(), r.GetVersionInfo(), r.GetResponseNonce())
	if r.GetNode() != nil {
		s = "node=" + r.GetNode().GetId() + " " + s
	}
	if r.GetErrorDetail() != nil {
		s += " NACK"
	}
	return s
}

func (c *conversation) expect(want string) {
	c.t.Helper()
	if got := c.hear(); got != want {
		c.t.Fatalf("heard %s\nwant  %s", got, want)
	}
}

func (c *conversation) expectNothing() {
	c.t.Helper()
	synctest.Wait()
	select {
	case r := <-c.requests:
		c.t.Fatalf("heard %s, want nothing", describeRequest(r))
	default:
	}
}

// say sends a response. Its type is that of the first resource.
func (c *conversation) say(version, nonce string, resources ...*anypb.Any) {
	c.t.Helper()
	url := resource.TypeCluster.URL()
	if len(resources) > 0 {
		url = resources[0].GetTypeUrl()
	}
	c.sayOf(url, version, nonce, resources...)
}

func (c *conversation) sayOf(url, version, nonce string, resources ...*anypb.Any) {
	c.t.Helper()
	if err := c.stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: version, Nonce: nonce, Resources: resources}); err != nil {
		c.t.Fatal(err)
	}
}

func pack(m protobuf.Message) *anypb.Any {
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

// cluster is a good one. With a service name it is another one of the same name.
func cluster(name string, service ...string) *anypb.Any {
	c := clusterProto(name)
	for _, s := range service {
		c.EdsClusterConfig.ServiceName = s
	}
	return pack(c)
}

// badCluster has a policy that nobody has.
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

type stub = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

// garbage sends bytes that are no message.
func (c *conversation) garbage(b garbage) {
	c.t.Helper()
	if err := c.stream.SendMsg(b); err != nil {
		c.t.Fatal(err)
	}
}

// garbage is sent as it is.
type garbage []byte

// garbling is grpc's codec, but for garbage.
type garbling struct{ encoding.CodecV2 }

func (g garbling) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(garbage); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return g.CodecV2.Marshal(v)
}

// namedPolicy is a cluster with a policy of a name.
func namedPolicy(name, policy string) *anypb.Any {
	c := clusterProto(name)
	config := pack(&xdstypev3.TypedStruct{TypeUrl: "type.googleapis.com/" + policy})
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

// routes lead to a cluster.
func routes(name, cluster string) *anypb.Any {
	return pack(&routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{{
		Name: "all", Domains: []string{"*"},
		Routes: []*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
		}},
	}}})
}
