package ccore_test

import (
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// upstream is a gRPC server that answers every call with its address.
type upstream struct {
	host   string
	port   uint32
	server *grpc.Server // nil while it is stopped
	conns  *connections
}

// connections is a listener that can close what it has accepted: a gRPC server waits
// for clients that only hold a connection, as lbd does.
type connections struct {
	net.Listener

	mu       sync.Mutex
	accepted []net.Conn
}

func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		c.accepted = append(c.accepted, conn)
		c.mu.Unlock()
	}
	return conn, err
}

func (c *connections) close() {
	_ = c.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.accepted {
		_ = conn.Close()
	}
}

func (u *upstream) address() string { return fmt.Sprintf("%s:%d", u.host, u.port) }

func (u *upstream) up() bool { return u.server != nil }

func (u *upstream) start(t *testing.T) {
	t.Helper()
	if u.up() {
		return
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", u.address())
	must(t, err)
	u.server, u.conns = grpc.NewServer(grpc.UnknownServiceHandler(u.answer)), &connections{Listener: l}
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(u.server, u.conns) // ends with stop
}

func (u *upstream) answer(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	return stream.SendMsg(wrapperspb.String(u.address()))
}

// stop closes the listener and every connection.
func (u *upstream) stop() {
	if u.up() {
		u.conns.close()
		u.server.Stop()
		u.server = nil
	}
}
