package lb_test

import (
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// dialing is one Connector on real sockets, and what it reports. Waits end with
// the test's own deadline.
type dialing struct {
	t       *testing.T
	dialer  *lb.Dialer
	reports chan lb.Connection
}

func newDialing(t *testing.T) *dialing {
	d := &dialing{t: t, dialer: lb.NewDialer(nil, overload.Budget{}, nil, nil), reports: make(chan lb.Connection, 16)}
	t.Cleanup(d.dialer.Close)
	return d
}

func (d *dialing) start(mode resource.ConnectMode, addresses ...string) (stop func()) {
	return d.dialer.Connectors(resource.ConnectTCP)[mode].Start(addresses, func(c lb.Connection) { d.reports <- c })
}

// listen accepts connections on loopback and hands them over.
func listen(t *testing.T) (net.Listener, <-chan net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	conns, done := make(chan net.Conn, 16), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- c
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		close(conns)
		for c := range conns {
			_ = c.Close()
		}
	})
	return l, conns
}

var modes = []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold}

func TestDialAccepted(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			d := newDialing(t)
			l, conns := listen(t)
			stop := d.start(mode, l.Addr().String())
			if c := <-d.reports; c.Err != nil || c.Address != l.Addr().String() {
				t.Fatalf("reported %+v", c)
			}
			conn := <-conns
			defer conn.Close() //nolint:errcheck // nothing depends on it
			if mode == resource.ConnectTCPHold {
				// What an endpoint sends is thrown away, and the connection stays
				// until it is given up.
				if _, err := conn.Write(make([]byte, 1<<16)); err != nil {
					t.Error(err)
				}
				stop()
			}
			if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the endpoint read %d bytes, %v; want an end", n, err)
			}
			stop()
			d.dialer.Close()
			select {
			case c := <-d.reports:
				t.Errorf("reported %+v after it was stopped", c)
			default:
			}
		})
	}
}

// TestDialLost: a listener that goes away is noticed, in mode tcp within
// NoticeTime, in mode tcp_hold as soon as the connection ends.
func TestDialLost(t *testing.T) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			d := newDialing(t)
			l, conns := listen(t)
			d.start(mode, l.Addr().String())
			if c := <-d.reports; c.Err != nil {
				t.Fatalf("reported %+v", c)
			}
			conn := <-conns
			noError(t, l.Close())
			_ = conn.Close()
			if c := <-d.reports; c.Err == nil || c.Address != "" {
				t.Errorf("reported %+v, want a loss", c)
			}
		})
	}
}

// TestDialerClose: held connections, checks to come and queued dials all end.
func TestDialerClose(t *testing.T) {
	d := newDialing(t)
	l, conns := listen(t)
	d.start(resource.ConnectTCPHold, l.Addr().String())
	<-d.reports
	d.start(resource.ConnectTCP, l.Addr().String())
	<-d.reports
	d.dialer.Close()
	d.dialer.Close()
	conn := <-conns
	defer conn.Close() //nolint:errcheck // nothing depends on it
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Error(err)
	}
	d.start(resource.ConnectTCP, l.Addr().String()) // nothing comes of it
	select {
	case c := <-d.reports:
		t.Errorf("reported %+v after Close", c)
	default:
	}
}

func TestConnectors(t *testing.T) {
	d := lb.NewDialer(nil, overload.Budget{}, nil, nil)
	defer d.Close()
	for _, standard := range []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold, resource.ConnectNone} {
		m := d.Connectors(standard)
		if m[resource.ConnectDefault] != m[standard] {
			t.Errorf("the default mode is not %s", standard)
		}
		if (m[standard] == nil) != (standard == resource.ConnectNone) {
			t.Errorf("%s: %v", standard, m[standard])
		}
	}
	var times []time.Duration
	for _, mode := range []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold, resource.ConnectNone} {
		times = append(times, lb.NoticeTime(mode))
	}
	if !slices.Equal(times, []time.Duration{11800 * time.Millisecond, 20 * time.Second, -1}) {
		t.Errorf("notice times %v", times)
	}
}
