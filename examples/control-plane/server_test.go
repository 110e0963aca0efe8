package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// TestStopAndStart: a server that was stopped and started serves streams as before,
// long after the calls are answered.
func TestStopAndStart(t *testing.T) {
	var config net.ListenConfig
	free, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	noError(t, err)
	s, w := newServer(free.Addr().String()), &world{}
	noError(t, free.Close())
	noError(t, s.set(t.Context(), w))
	noError(t, s.start(t.Context()))
	defer s.stop()
	admin := httptest.NewServer(orders(t.Context(), s, w))
	defer admin.Close()
	order(t, admin.URL+"/stop")
	order(t, admin.URL+"/start")

	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	noError(t, err)
	defer conn.Close() //nolint:errcheck // the test is over
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	noError(t, err)
	if err := stream.Send(&discoveryv3.DiscoveryRequest{
		Node: &corev3.Node{Id: "test"}, TypeUrl: resource.ListenerType, ResourceNames: []string{target},
	}); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatalf("a stream after the server has started again: %v", err)
	}
	if len(r.GetResources()) != 1 {
		t.Errorf("%d Listeners, want 1", len(r.GetResources()))
	}
}

func order(t *testing.T, url string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	noError(t, err)
	answer, err := http.DefaultClient.Do(r)
	noError(t, err)
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
