package acceptance_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// answer is a client's answer to a resource.
type answer struct {
	name, url string
	nack      string // why; empty for an ACK
}

// server is a management server that reports the answers to its resources.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	address  string
	grpc     *grpc.Server
	answers  chan answer // may be nil
	clusters bool        // every requested cluster exists, with an empty assignment

	mu        sync.Mutex
	resources map[key]*anypb.Any
}

type key struct{ url, name string }

func newServer() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{
		address: l.Addr().String(), grpc: grpc.NewServer(),
		resources: map[key]*anypb.Any{},
	}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, s)
	go func() { _ = s.grpc.Serve(l) }() // ends with Stop
	return s, nil
}

func (s *server) put(name string, r *anypb.Any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resources[key{r.GetTypeUrl(), name}] = r
}

// find returns a resource, or nil.
func (s *server) find(url, name string) *anypb.Any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.resources[key{url, name}]; r != nil || !s.clusters {
		return r
	}
	switch url {
	case resource.TypeCluster.URL():
		return pack(edsCluster(name))
	case resource.TypeAssignment.URL():
		return pack(&endpointv3.ClusterLoadAssignment{ClusterName: name})
	default:
		return nil
	}
}

// StreamAggregatedResources serves one channel: a client of grpc-go has a stream
// for each of its targets.
func (s *server) StreamAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	sent := map[string]string{} // the names, by type
	for n := 0; ; n++ {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		url, names := req.GetTypeUrl(), req.GetResourceNames()
		slices.Sort(names)
		asked := strings.Join(names, " ")
		if sent[url] == asked {
			if s.answers != nil && len(names) == 1 {
				select {
				case s.answers <- answer{asked, url, req.GetErrorDetail().GetMessage()}:
				case <-stream.Context().Done():
				}
			}
			continue
		}
		sent[url] = asked
		res := &discoveryv3.DiscoveryResponse{VersionInfo: strconv.Itoa(n), Nonce: strconv.Itoa(n), TypeUrl: url}
		for _, name := range names {
			if r := s.find(url, name); r != nil {
				res.Resources = append(res.Resources, r)
			}
		}
		if len(res.GetResources()) == 0 {
			continue
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
}

// resolver returns grpc-go's resolver with the server.
func (s *server) resolver(t *testing.T) resolver.Builder {
	t.Helper()
	b, err := xds.NewXDSResolverWithConfigForTesting(fmt.Appendf(nil, `{
		"xds_servers": [{"server_uri": %q, "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}],
		"node": {"id": "acceptance"},
		"certificate_providers": {"known": {"plugin_name": "file_watcher", "config": {"certificate_file": "c", "private_key_file": "k", "ca_certificate_file": "a", "refresh_interval": "600s"}}}
	}`, s.address))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
