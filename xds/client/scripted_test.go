package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

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
	s.server = grpc.NewServer(grpc.ForceServerCodecV2(garbling{encoding.GetCodecV2(proto.Name)}))
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

// fail sends a response with an error for a Cluster (xRFC TP3), and the resources.
func (c *conversation) fail(version, nonce, name string, code codes.Code, resources ...*anypb.Any) {
	c.t.Helper()
	if err := c.stream.Send(&discoveryv3.DiscoveryResponse{
		TypeUrl: resource.TypeCluster.URL(), VersionInfo: version, Nonce: nonce, Resources: resources,
		ResourceErrors: []*discoveryv3.ResourceError{{
			ResourceName: &discoveryv3.ResourceName{Name: name}, ErrorDetail: status.New(code, "reason").Proto(),
		}},
	}); err != nil {
		c.t.Fatal(err)
	}
}

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
