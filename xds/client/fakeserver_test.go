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

// fakeServer is a management server whose responses the test sends: a gRPC server on a
// connection in memory.
type fakeServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	t       *testing.T
	streams chan *serverStream

	mu       sync.Mutex
	down     error // error of dials
	dials    int
	listener *bufconn.Listener
	server   *grpc.Server
	stopped  chan struct{}
	handle   func(discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error // takes the place of a serverStream
}

func newFakeServer(t *testing.T) *fakeServer {
	s := &fakeServer{t: t, streams: make(chan *serverStream, 1000)}
	s.start()
	return s
}

func (s *fakeServer) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = nil
	s.listener = bufconn.Listen(1 << 20)
	s.server = grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2(proto.Name)}))
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

// kill stops the server and its connections.
func (s *fakeServer) kill() {
	s.mu.Lock()
	server, stopped := s.server, s.stopped
	if s.down == nil {
		s.down = errors.New("not listening")
	}
	s.mu.Unlock()
	server.Stop()
	<-stopped
}

func (s *fakeServer) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	listener, down := s.listener, s.down
	s.dials++
	s.mu.Unlock()
	if down != nil {
		return nil, down
	}
	return listener.DialContext(ctx)
}

func (s *fakeServer) StreamAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer) error {
	s.mu.Lock()
	handle := s.handle
	s.mu.Unlock()
	if handle != nil {
		return handle(stream)
	}
	c := &serverStream{
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
func (s *fakeServer) accept() *serverStream {
	s.t.Helper()
	return await(s.t, s.streams, "stream")
}

// serverStream is one stream, as the server sees it.
type serverStream struct {
	t        *testing.T
	stream   discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer
	opened   time.Time
	requests chan *discoveryv3.DiscoveryRequest
	end      chan error
}

// receive returns the next request as text:
// "node Cluster names version nonce NACK".
func (c *serverStream) receive() string {
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

func (c *serverStream) expect(want string) {
	c.t.Helper()
	if got := c.receive(); got != want {
		c.t.Fatalf("request %s\nwant    %s", got, want)
	}
}

func (c *serverStream) expectNothing() {
	c.t.Helper()
	synctest.Wait()
	select {
	case r := <-c.requests:
		c.t.Fatalf("request %s, want none", describeRequest(r))
	default:
	}
}

// send sends a response. Its type is that of the first resource.
func (c *serverStream) send(version, nonce string, resources ...*anypb.Any) {
	c.t.Helper()
	url := resource.TypeCluster.URL()
	if len(resources) > 0 {
		url = resources[0].GetTypeUrl()
	}
	c.sendType(url, version, nonce, resources...)
}

func (c *serverStream) sendType(url, version, nonce string, resources ...*anypb.Any) {
	c.t.Helper()
	noError(c.t, c.stream.Send(&discoveryv3.DiscoveryResponse{TypeUrl: url, VersionInfo: version, Nonce: nonce, Resources: resources}))
}

// fail sends a response with an error for a Cluster (xRFC TP3), and the resources.
func (c *serverStream) fail(version, nonce, name string, code codes.Code, resources ...*anypb.Any) {
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

type adsServerStream = discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer

// rawMessage sends bytes that are not a message.
func (c *serverStream) rawMessage(b rawMessage) {
	c.t.Helper()
	noError(c.t, c.stream.SendMsg(b))
}

// rawMessage is sent without encoding.
type rawMessage []byte

// rawCodec is gRPC's codec with support for rawMessage.
type rawCodec struct{ encoding.CodecV2 }

func (g rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(rawMessage); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return g.CodecV2.Marshal(v)
}
