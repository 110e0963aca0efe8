package lb

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestKeepAlive: the kernel finds out within NoticeTime that a silent
// connection is lost.
func TestKeepAlive(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer l.Close()
	d := NewDialer(nil, overload.Budget{}, nil, nil)
	defer d.Close()
	conn, err := tcpConnector{dialer: d}.dial(t.Context(), l.Addr().String(), time.Minute, func() {})
	noError(t, err)
	defer conn.Close() //nolint:errcheck // nothing depends on it
	socket, ok := conn.(syscall.Conn)
	if !ok {
		t.Fatalf("a %T has no socket", conn)
	}
	raw, err := socket.SyscallConn()
	noError(t, err)
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

// full returns an address that takes connections no more: the backlog of its
// listener is full, and what is sent to it is swallowed.
func full(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	noError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	noError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	if err := syscall.Listen(fd, 0); err != nil { // room for one
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	noError(t, err)
	v4, ok := at.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("bound to a %T", at)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(v4.Port))
	conn, err := net.Dial("tcp", address)
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return address
}

// TestDialSwallowed: on real sockets, an address that answers nothing is given up
// once the next has connected, and does not have to time out before.
func TestDialSwallowed(t *testing.T) {
	for _, mode := range []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold} {
		t.Run(string(mode), func(t *testing.T) {
			silent := full(t)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			noError(t, err)
			defer l.Close()
			d := NewDialer(nil, overload.Budget{}, nil, nil)
			defer d.Close()
			ends := make(chan error, 1)
			connect := d.connect
			d.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := connect(ctx, network, address)
				if address == silent {
					ends <- err
				}
				return conn, err
			}
			reports := make(chan Connection, 2)
			stop := d.Connectors(mode)[mode].Start([]string{silent, l.Addr().String()}, func(c Connection) { reports <- c })
			defer stop()
			if c := <-reports; c.Err != nil || c.Address != l.Addr().String() {
				t.Errorf("reported %+v, want %s", c, l.Addr())
			}
			if err := <-ends; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want that it was given up", silent, err)
			}
		})
	}
}
