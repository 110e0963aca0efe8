package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

// server is the management server: ADS from a cache, and load reports (LRS).
type server struct {
	address string
	cache   cache.SnapshotCache
	loads   *loads

	mu      sync.Mutex
	running *grpc.Server // nil while it is stopped
	done    chan struct{}
}

// newServer returns a server that is not started.
func newServer(address string) *server {
	return &server{
		address: address,
		// Each client requests the names that it needs, not all.
		cache: cache.NewSnapshotCache(false, oneForAll{}, nil),
		loads: newLoads(),
	}
}

// oneForAll gives every client the same snapshot.
type oneForAll struct{}

// ID is the same for every client.
func (oneForAll) ID(*corev3.Node) string { return "all" }

// set replaces the resources that the server sends.
func (s *server) set(ctx context.Context, w *world) error {
	snapshot, err := w.snapshot()
	if err != nil {
		return err
	}
	return s.cache.SetSnapshot(ctx, "all", snapshot)
}

// start serves until stop or ctx ends. It does nothing if the server is started.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(ctx, s.cache, callbacks()))
	loadv3.RegisterLoadReportingServiceServer(g, s.loads)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := g.Serve(l); err != nil && !errors.Is(err, io.EOF) {
			fmt.Println("management server:", err)
		}
	}()
	s.running, s.done = g, done
	fmt.Println("management server: up")
	return nil
}

// stop ends every stream and closes the listener.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return
	}
	s.running.Stop()
	<-s.done
	s.running = nil
	fmt.Println("management server: down")
}

// callbacks print what clients reject (NACK).
func callbacks() serverv3.CallbackFuncs {
	return serverv3.CallbackFuncs{
		StreamRequestFunc: func(_ int64, r *discoveryv3.DiscoveryRequest) error {
			if r.GetErrorDetail() != nil {
				fmt.Printf("management server: %s rejected (NACK): %s\n", r.GetTypeUrl(), r.GetErrorDetail().GetMessage())
			}
			return nil
		},
	}
}
