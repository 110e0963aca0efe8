package observability_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// nodeID is the node ID of the daemon.
const nodeID = "lbd-observed"

// controlPlane is a management server of go-control-plane.
type controlPlane struct {
	address string
	stop    func() // ends its streams and its listener
	cache   cache.SnapshotCache
	version int
}

func startControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	l, err := net.Listen("tcp", anywhere)
	must(t, err)
	p := &controlPlane{address: l.Addr().String(), cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil)}
	ctx, cancel := context.WithCancel(t.Context())
	server := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, serverv3.NewServer(ctx, p.cache, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("management server: %v", err)
		}
	}()
	p.stop = func() { cancel(); server.Stop(); <-done }
	t.Cleanup(p.stop)
	return p
}

// bootstrap writes a bootstrap file with the server.
func (p *controlPlane) bootstrap(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.json")
	writeFile(t, file, fmt.Sprintf(`{"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}]}], "node": {"id": %q}}`, p.address, nodeID))
	return file
}

// serves sets the resources of the server: clusters, each with a policy, with the same assignment.
func (p *controlPlane) serves(t *testing.T, policies map[string]string, endpoints string) {
	t.Helper()
	p.version++
	var clusters, assignments []types.Resource
	for name, policy := range policies {
		c, a := &clusterv3.Cluster{}, &endpointv3.ClusterLoadAssignment{}
		fromYAML(t, fmt.Sprintf("{name: %s, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}, lb_policy: %s}", name, policy), c)
		fromYAML(t, "cluster_name: "+name+"\n"+endpoints, a)
		clusters, assignments = append(clusters, c), append(assignments, a)
	}
	snapshot, err := cache.NewSnapshot(strconv.Itoa(p.version), map[resource.Type][]types.Resource{
		resource.ClusterType: clusters, resource.EndpointType: assignments,
	})
	must(t, err)
	must(t, p.cache.SetSnapshot(t.Context(), nodeID, snapshot))
}

func fromYAML(t *testing.T, text string, into proto.Message) {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(b, into)
	}
	must(t, err)
}
