package ccore_test

import (
	"net"
	"strconv"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// management is the management server of one scenario.
type management struct {
	address string
	cache   cache.SnapshotCache
	version int
}

// everybody gives all clients the same resources.
type everybody struct{}

func (everybody) ID(*corev3.Node) string { return "" }

func newManagement(t *testing.T) *management {
	t.Helper()
	m := &management{cache: cache.NewSnapshotCache(false, everybody{}, nil)}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	m.address = l.Addr().String()
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(t.Context(), m.cache, nil))
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	return m
}

// set replaces all resources.
func (m *management) set(t *testing.T, listener types.Resource, clusters, assignments []types.Resource) {
	t.Helper()
	m.version++
	v := strconv.Itoa(m.version)
	s := &cache.Snapshot{}
	s.Resources[types.Listener] = cache.NewResources(v, []types.Resource{listener})
	s.Resources[types.Cluster] = cache.NewResources(v, clusters)
	s.Resources[types.Endpoint] = cache.NewResources(v, assignments)
	must(t, m.cache.SetSnapshot(t.Context(), "", s))
}
