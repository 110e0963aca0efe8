package lb

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// TestKeepAlive: the kernel is told to find out within NoticeTime that a silent
// connection is lost.
func TestKeepAlive(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := NewDialer(nil)
	defer d.Close()
	conn, err := tcpConnector{dialer: d}.dial(t.Context(), l.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing depends on it
	socket, ok := conn.(syscall.Conn)
	if !ok {
		t.Fatalf("a %T has no socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	option := func(level, name int) (value int) {
		t.Helper()
		if controlErr := raw.Control(func(fd uintptr) { value, err = syscall.GetsockoptInt(int(fd), level, name) }); controlErr != nil || err != nil {
			t.Fatal(controlErr, err)
		}
		return value
	}
	if option(syscall.SOL_SOCKET, syscall.SO_KEEPALIVE) == 0 {
		t.Fatal("keepalive is off")
	}
	seconds := option(syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE) +
		option(syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL)*option(syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT)
	if got := time.Duration(seconds) * time.Second; got != NoticeTime(resource.ConnectTCPHold) {
		t.Errorf("noticed after %v, NoticeTime says %v", got, NoticeTime(resource.ConnectTCPHold))
	}
}
