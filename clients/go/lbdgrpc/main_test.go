package lbdgrpc_test

import (
	"fmt"
	"net"
	"os"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/lbd-dev/lbd/clients/go/internal/lbdtest"
)

// TestMain starts the lbd that the examples find by the environment, with the cluster orders.
func TestMain(m *testing.M) {
	d, err := lbdtest.New()
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	if _, err := d.Do("PUT", "/v1/clusters/orders/endpoints", listener.Addr().String()); err != nil {
		panic(err)
	}
	if err := os.Setenv("LBD", d.Address); err != nil {
		panic(err)
	}
	code := m.Run()
	server.Stop()
	d.Close()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
