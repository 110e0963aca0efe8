package acceptance_test

import (
	"net"
	"strconv"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// answer is what a client says of a resource.
type answer struct {
	name, url string
	nack      string // why; empty for an ACK
}

// server sends each resource to whoever asks for it, once, and tells what it is
// answered.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	address string
	grpc    *grpc.Server
	answers chan answer

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
		address: l.Addr().String(), grpc: grpc.NewServer(), answers: make(chan answer, 1),
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

// StreamAggregatedResources serves one channel: a client of grpc-go has a stream
// for each of its targets.
func (s *server) StreamAggregatedResources(stream grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]) error {
	for n := 0; ; n++ {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(req.GetResourceNames()) != 1 {
			continue
		}
		name, url := req.GetResourceNames()[0], req.GetTypeUrl()
		if req.GetResponseNonce() != "" {
			select {
			case s.answers <- answer{name, url, req.GetErrorDetail().GetMessage()}:
			case <-stream.Context().Done():
			}
			continue
		}
		s.mu.Lock()
		r := s.resources[key{url, name}]
		s.mu.Unlock()
		if r == nil {
			continue
		}
		version := strconv.Itoa(n)
		if err := stream.Send(&discoveryv3.DiscoveryResponse{VersionInfo: version, Nonce: version, TypeUrl: url, Resources: []*anypb.Any{r}}); err != nil {
			return err
		}
	}
}
