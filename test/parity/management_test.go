package parity_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
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
// as its target is, and "NAME/lbd" where lbd asks too.
type management struct {
	serverv3.CallbackFuncs

	address string
	cache   cache.SnapshotCache
	grpc    *grpc.Server
	cancel  context.CancelFunc

	mu       sync.Mutex
	talks    map[talkKey]*talk
	asked    map[askedKey][]string
	verdicts map[verdictKey]verdict
	changed  chan struct{} // closed and replaced with each verdict
}

// talkKey names what is said about one type on one stream.
type talkKey struct {
	stream int64
	url    string
}

// talk is the last response, and whether it was answered.
type talk struct {
	node, nonce, version string
	answered             bool
}

type askedKey struct{ node, url string }

type verdictKey struct{ node, url, version string }

// verdict is a client's answer to the responses of a version.
type verdict struct {
	nack string // why; empty is an ACK
}

// lbdNode is how lbd calls itself to the management server.
func lbdNode(node string) string { return node + "/lbd" }

// nodes has a scenario's two clients for one.
type nodes struct{}

// ID is that of grpc-go's.
func (nodes) ID(n *corev3.Node) string {
	name, _, _ := strings.Cut(n.GetId(), "/")
	return name
}

func newManagement() (*management, error) {
	m := &management{
		cache:    cache.NewSnapshotCache(false, nodes{}, nil),
		grpc:     grpc.NewServer(),
		talks:    make(map[talkKey]*talk),
		asked:    make(map[askedKey][]string),
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

func (m *management) response(_ context.Context, stream int64, req *discoveryv3.DiscoveryRequest, res *discoveryv3.DiscoveryResponse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.talks[talkKey{stream, res.GetTypeUrl()}] = &talk{node: req.GetNode().GetId(), nonce: res.GetNonce(), version: res.GetVersionInfo()}
}

// request takes the answer to a response. The cache would send a version that was
// refused again and again: it is told that the client has it.
func (m *management) request(stream int64, req *discoveryv3.DiscoveryRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, url := req.GetNode().GetId(), req.GetTypeUrl()
	m.asked[askedKey{node, url}] = req.GetResourceNames()
	t := m.talks[talkKey{stream, url}]
	if t == nil || t.nonce != req.GetResponseNonce() {
		return nil
	}
	req.VersionInfo = t.version
	if t.answered { // other resources are wanted now
		return nil
	}
	t.answered = true
	key := verdictKey{node, url, t.version}
	v := m.verdicts[key]
	if nack := req.GetErrorDetail().GetMessage(); nack != "" {
		v.nack += nack + "\n"
	}
	m.verdicts[key] = v
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// send gives a node its resources, and returns what it answers to each type of
// them.
func (m *management) send(ctx context.Context, node string, version int, r resources) (cds, eds verdict, err error) {
	v := strconv.Itoa(version)
	if err := m.set(ctx, node, v, []types.Resource{listenerFor(node, r.clusters[0].GetName())}, nil, asResources(r.clusters), asResources(r.assignments)); err != nil {
		return verdict{}, verdict{}, err
	}
	if cds, err = m.wait(ctx, verdictKey{node, resourcev3.ClusterType, v}); err != nil {
		return verdict{}, verdict{}, err
	}
	eds, err = m.wait(ctx, verdictKey{node, resourcev3.EndpointType, v})
	return cds, eds, err
}

// serve gives a node the resources of a target.
func (m *management) serve(ctx context.Context, node, version string, r hosted) error {
	all := r.all()
	return m.set(ctx, node, version, all[0], all[1], all[2], all[3])
}

// set gives a node its resources.
func (m *management) set(ctx context.Context, node, version string, listeners, routes, clusters, assignments []types.Resource) error {
	snapshot := &cache.Snapshot{}
	snapshot.Resources[types.Listener] = cache.NewResources(version, listeners)
	snapshot.Resources[types.Route] = cache.NewResources(version, routes)
	snapshot.Resources[types.Cluster] = cache.NewResources(version, clusters)
	snapshot.Resources[types.Endpoint] = cache.NewResources(version, assignments)
	if err := m.cache.SetSnapshot(ctx, node, snapshot); err != nil {
		return fmt.Errorf("serve version %s: %w", version, err)
	}
	return nil
}

// unanswered counts the responses to a client that it has not answered yet.
func (m *management) unanswered(node string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, t := range m.talks {
		if t.node == node && !t.answered {
			n++
		}
	}
	return n
}

// askedFor lists what a client wants of a type, in order.
func (m *management) askedFor(node, url string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.asked[askedKey{node, url}]))
}

// nacked is what a client has said against a version of a type; empty where it
// has accepted it, or was not sent it.
func (m *management) nacked(node, url, version string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.verdicts[verdictKey{node, url, version}].nack
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
	return listenerOf(target, &managerv3.HttpConnectionManager{
		HttpFilters: []*managerv3.HttpFilter{router()},
		RouteSpecifier: &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name:         target,
			VirtualHosts: []*routev3.VirtualHost{{Name: target, Domains: []string{"*"}, Routes: []*routev3.Route{route}}},
		}},
	})
}

func listenerOf(target string, manager *managerv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{Name: target, ApiListener: &listenerv3.ApiListener{ApiListener: packed(manager)}}
}

// router is the HTTP filter that comes last.
func router() *managerv3.HttpFilter {
	return &managerv3.HttpFilter{
		Name:       "router",
		ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(&routerv3.Router{})},
	}
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
