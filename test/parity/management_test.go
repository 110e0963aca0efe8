package parity_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // in JSON
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// management is one management server for all scenarios. The nodes of a scenario have the
// name of its target, with "/lbd" for lbd.
type management struct {
	serverv3.CallbackFuncs

	address string
	cache   cache.SnapshotCache
	grpc    *grpc.Server
	cancel  context.CancelFunc

	mu       sync.Mutex
	streams  map[streamKey]*lastResponse
	asked    map[askedKey][]string
	verdicts map[verdictKey]string // the errors; an empty text is an ACK
	changed  chan struct{}         // closed and replaced with each verdict
}

// streamKey is a type on a stream.
type streamKey struct {
	stream int64
	url    string
}

// lastResponse is the last response, and whether it was answered.
type lastResponse struct {
	node, nonce, version string
	answered             bool
}

type askedKey struct{ node, url string }

type verdictKey struct{ node, url, version string }

// lbdNode is the node ID of lbd.
func lbdNode(node string) string { return node + "/lbd" }

// nodes gives both clients of a scenario the same resources.
type nodes struct{}

func (nodes) ID(n *corev3.Node) string {
	name, _, _ := strings.Cut(n.GetId(), "/")
	return name
}

func newManagement() (*management, error) {
	m := &management{
		cache:    cache.NewSnapshotCache(false, nodes{}, nil),
		grpc:     grpc.NewServer(),
		streams:  make(map[streamKey]*lastResponse),
		asked:    make(map[askedKey][]string),
		verdicts: make(map[verdictKey]string),
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
	m.streams[streamKey{stream, res.GetTypeUrl()}] = &lastResponse{node: req.GetNode().GetId(), nonce: res.GetNonce(), version: res.GetVersionInfo()}
}

// request records the answer to a response. It tells the cache that the client has a
// rejected version, because the cache would otherwise send it again and again.
func (m *management) request(stream int64, req *discoveryv3.DiscoveryRequest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	node, url := req.GetNode().GetId(), req.GetTypeUrl()
	m.asked[askedKey{node, url}] = req.GetResourceNames()
	t := m.streams[streamKey{stream, url}]
	if t == nil || t.nonce != req.GetResponseNonce() {
		return nil
	}
	req.VersionInfo = t.version
	if t.answered { // the subscriptions have changed
		return nil
	}
	t.answered = true
	key := verdictKey{node, url, t.version}
	m.verdicts[key] += req.GetErrorDetail().GetMessage()
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

// serve sets the resources of a node.
func (m *management) serve(ctx context.Context, node, version string, r resources) error {
	snapshot, err := cache.NewSnapshot(version, r.all())
	if err != nil {
		return fmt.Errorf("make version %s: %w", version, err)
	}
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
	for _, t := range m.streams {
		if t.node == node && !t.answered {
			n++
		}
	}
	return n
}

// askedFor lists a client's subscriptions of a type, in order.
func (m *management) askedFor(node, url string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(slices.Values(m.asked[askedKey{node, url}]))
}

// nacked returns a client's errors for a version of a type; empty if it has accepted the
// version or has not received it.
func (m *management) nacked(node, url, version string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.verdicts[verdictKey{node, url, version}]
}

func asResources[M types.Resource](ms []M) []types.Resource {
	out := make([]types.Resource, len(ms))
	for i, m := range ms {
		out[i] = m
	}
	return out
}

// wait waits for a client's answer to a version, and returns its errors.
func (m *management) wait(ctx context.Context, node, url, version string) (nack string, err error) {
	for {
		m.mu.Lock()
		nack, ok := m.verdicts[verdictKey{node, url, version}]
		changed := m.changed
		m.mu.Unlock()
		if ok {
			return nack, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the answer to version %s of %s: %w", version, url, ctx.Err())
		}
	}
}

// hashHeader is the header whose value the routes hash.
const hashHeader = "parity-hash"

// listenerFor is a Listener that routes every call of a target to one cluster.
func listenerFor(target, cluster string) *listenerv3.Listener {
	r := leadsTo(cluster)
	r.hash = []hashedBy{{header: hashHeader}}
	h := hosting{target: target, hosts: []virtualHost{{name: target, domains: []string{"*"}, routes: []*route{r}}}}
	return h.resources().listener
}

// router is the HTTP filter that must come last.
func router() *managerv3.HttpFilter {
	return set(&managerv3.HttpFilter{}, routerFilter)
}

// ads is the source of routes and endpoints.
var ads = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err) // none of the messages made here has invalid UTF-8
	}
	return a
}
