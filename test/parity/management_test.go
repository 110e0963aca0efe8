package parity_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// resources are what a scenario's management server has.
type resources struct {
	// clusters holds the one that calls go to, first, and those that it is made
	// of.
	clusters    []*clusterv3.Cluster
	assignments []*endpointv3.ClusterLoadAssignment
}

// management is one management server for all scenarios: each is a node, named
// as its target is.
type management struct {
	serverv3.CallbackFuncs

	address string
	cache   cache.SnapshotCache
	grpc    *grpc.Server
	cancel  context.CancelFunc

	mu       sync.Mutex
	versions map[sent]string
	verdicts map[verdictKey]verdict
	changed  chan struct{} // closed and replaced with each verdict
}

// sent is a response on its way.
type sent struct {
	stream int64
	url    string
	nonce  string
}

type verdictKey struct{ node, url, version string }

// verdict is a client's answer to a response.
type verdict struct {
	nack string // why; empty is an ACK
}

func newManagement() (*management, error) {
	m := &management{
		cache:    cache.NewSnapshotCache(false, cache.IDHash{}, nil),
		grpc:     grpc.NewServer(),
		versions: make(map[sent]string),
		verdicts: make(map[verdictKey]verdict),
		changed:  make(chan struct{}),
	}
	m.StreamRequestFunc = m.request
	m.StreamResponseFunc = m.response
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(m.grpc, serverv3.NewServer(ctx, m.cache, m))
	go func() { _ = m.grpc.Serve(l) }() // ends with close
	return m, nil
}

func (m *management) close() {
	m.grpc.Stop()
	m.cancel()
}

func (m *management) response(_ context.Context, stream int64, _ *discoveryv3.DiscoveryRequest, res *discoveryv3.DiscoveryResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.versions[sent{stream, res.GetTypeUrl(), res.GetNonce()}] = res.GetVersionInfo()
}

func (m *management) request(stream int64, req *discoveryv3.DiscoveryRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := sent{stream, req.GetTypeUrl(), req.GetResponseNonce()}
	version, ok := m.versions[key]
	if !ok {
		return nil
	}
	delete(m.versions, key)
	m.verdicts[verdictKey{req.GetNode().GetId(), key.url, version}] = verdict{req.GetErrorDetail().GetMessage()}
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// send gives a node its resources, and returns what it answers to each type of
// them.
func (m *management) send(ctx context.Context, node string, version int, r resources) (cds, eds verdict, err error) {
	v := strconv.Itoa(version)
	snapshot := &cache.Snapshot{}
	snapshot.Resources[types.Listener] = cache.NewResources(v, []types.Resource{listenerFor(node, r.clusters[0].GetName())})
	snapshot.Resources[types.Cluster] = cache.NewResources(v, asResources(r.clusters))
	snapshot.Resources[types.Endpoint] = cache.NewResources(v, asResources(r.assignments))
	if err := m.cache.SetSnapshot(ctx, node, snapshot); err != nil {
		return verdict{}, verdict{}, fmt.Errorf("serve version %s: %w", v, err)
	}
	if cds, err = m.wait(ctx, verdictKey{node, resourcev3.ClusterType, v}); err != nil {
		return verdict{}, verdict{}, err
	}
	eds, err = m.wait(ctx, verdictKey{node, resourcev3.EndpointType, v})
	return cds, eds, err
}

func asResources[M types.Resource](ms []M) []types.Resource {
	out := make([]types.Resource, len(ms))
	for i, m := range ms {
		out[i] = m
	}
	return out
}

func (m *management) wait(ctx context.Context, key verdictKey) (verdict, error) {
	for {
		m.mu.Lock()
		v, ok := m.verdicts[key]
		changed := m.changed
		m.mu.Unlock()
		if ok {
			return v, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return verdict{}, fmt.Errorf("wait for the answer to version %s of %s: %w", key.version, key.url, ctx.Err())
		}
	}
}

// hashHeader is the header whose value the routes hash.
const hashHeader = "parity-hash"

// listenerFor leads every call of a target to one cluster.
func listenerFor(target, cluster string) *listenerv3.Listener {
	route := &routev3.Route{
		Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
		Action: &routev3.Route_Route{Route: &routev3.RouteAction{
			ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
			HashPolicy: []*routev3.RouteAction_HashPolicy{{
				PolicySpecifier: &routev3.RouteAction_HashPolicy_Header_{
					Header: &routev3.RouteAction_HashPolicy_Header{HeaderName: hashHeader},
				},
			}},
		}},
	}
	manager := packed(&managerv3.HttpConnectionManager{
		HttpFilters: []*managerv3.HttpFilter{{
			Name:       "router",
			ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(&routerv3.Router{})},
		}},
		RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name:         target,
			VirtualHosts: []*routev3.VirtualHost{{Name: target, Domains: []string{"*"}, Routes: []*routev3.Route{route}}},
		}},
	})
	return &listenerv3.Listener{Name: target, ApiListener: &listenerv3.ApiListener{ApiListener: manager}}
}

// ads is where a cluster's endpoints come from.
var ads = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // none of the messages made here has invalid UTF-8
	}
	return a
}
