package lbdtest

import (
	"net"
	"syscall"
	"testing"
	"time"
)

// Silent returns an address that does not answer when a connection is made: the queue of new ones is full.
func Silent(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	raw, err := listener.(*net.TCPListener).SyscallConn() //nolint:errcheck // it is one of TCP
	if err != nil {
		t.Fatal(err)
	}
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = syscall.Listen(int(fd), 0) }); err != nil || listenErr != nil {
		t.Fatal(err, listenErr)
	}
	for range 8 {
		connection, err := net.DialTimeout("tcp", listener.Addr().String(), 100*time.Millisecond) //nolint:noctx // it has a timeout
		if err != nil {
			return listener.Addr().String()
		}
		t.Cleanup(func() { _ = connection.Close() })
	}
	t.Fatal("all connections are accepted")
	return ""
}
