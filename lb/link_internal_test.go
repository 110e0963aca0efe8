package lb

import (
	"context"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/lb/probe"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/xds/resource"
)

// lackingConn is a connection whose first reads fail because of a shortage in lbd.
type lackingConn struct {
	net.Conn

	failures int
}

func (c *lackingConn) Read(b []byte) (int, error) {
	if c.failures > 0 {
		c.failures--
		return 0, syscall.ENOBUFS
	}
	return c.Conn.Read(b)
}

// TestShortageEndsNoHeldConnection: a read that fails because of a shortage in lbd is
// repeated after a pause, and the end of the connection is reported then.
func TestShortageEndsNoHeldConnection(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := overload.NewMonitor(func() error { return nil })
			defer m.Close()
			d := NewDialer(nil, overload.Budget{Held: 1}, m, nil)
			defer d.Close()
			near, far := net.Pipe()
			d.connect = func(context.Context, string, string) (net.Conn, error) {
				return &lackingConn{Conn: near, failures: 3}, nil
			}
			reports := make(chan Connection, 2)
			stop := d.Connectors(resource.ConnectTCPHold)[resource.ConnectTCPHold].Start([]string{"a:1"}, func(c Connection) { reports <- c })
			defer stop()
			<-reports
			synctest.Wait()
			if len(m.Current()) != 1 {
				t.Errorf("the monitor has %v", m.Current())
			}
			if stopped {
				stop()
			} else {
				time.Sleep(3 * overload.RetryPause * 3 / 2)
			}
			synctest.Wait()
			if len(reports) != 0 {
				t.Errorf("reported %+v", <-reports)
			}
			_ = far.Close()
			time.Sleep(time.Minute)
			synctest.Wait()
			if (len(reports) == 0) != stopped || d.held.Load() != 0 {
				t.Errorf("%d reports, %d connections held", len(reports), d.held.Load())
			}
		})
	}
}

// TestHoldWithoutGoroutines: held connections need no goroutine each, and a shortage in
// a read has them watched again.
func TestHoldWithoutGoroutines(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	defer l.Close()
	d := NewDialer(nil, overload.Budget{}, nil, nil)
	defer d.Close()
	if d.prober() == nil {
		return // not on this system
	}
	reports := make(chan Connection, 2)
	link := &tcpLink{tcpConnector: tcpConnector{dialer: d, hold: true}, report: func(c Connection) { reports <- c }}
	link.start([]string{l.Addr().String()})
	defer link.stop()
	<-reports
	server, err := l.Accept()
	noError(t, err)
	defer server.Close() //nolint:errcheck // nothing depends on it
	d.slots.wg.Wait()    // the dial has ended, and nothing else runs
	_, err = server.Write([]byte("discarded"))
	noError(t, err)
	link.stop()
	if n, err := io.Copy(io.Discard, server); n != 0 {
		t.Errorf("the server read %d bytes, %v", n, err)
	}
	if len(reports) != 0 || d.held.Load() != 0 {
		t.Errorf("%d reports, %d held", len(reports), d.held.Load())
	}
}

// fakeHolding is a prober that watches every connection, with the numbers from 1.
type fakeHolding struct {
	fakeProber

	held     int32
	released []int32
}

func (p *fakeHolding) Hold(*net.TCPConn, probe.Holder) (int32, bool) {
	p.held++
	return p.held, true
}

func (p *fakeHolding) Release(number int32, _ probe.Holder) { p.released = append(p.released, number) }

// TestHeldIsReleased: a link that is stopped releases its connection, with the number
// that it had last; one that is lost is released already.
func TestHeldIsReleased(t *testing.T) {
	for _, tt := range []struct {
		lost error
		want []int32
	}{{nil, []int32{1}}, {syscall.ENOMEM, []int32{2}}, {io.EOF, nil}} {
		synctest.Test(t, func(t *testing.T) {
			m := overload.NewMonitor(func() error { return nil })
			defer m.Close()
			d := NewDialer(nil, overload.Budget{}, m, nil)
			defer d.Close()
			p := &fakeHolding{}
			d.poller = p
			d.connect = func(context.Context, string, string) (net.Conn, error) { return new(net.TCPConn), nil }
			reports := make(chan Connection, 2)
			link := &tcpLink{tcpConnector: tcpConnector{dialer: d, hold: true}, report: func(c Connection) { reports <- c }}
			link.start([]string{"a:1"})
			<-reports
			synctest.Wait()
			if tt.lost != nil {
				link.Lost(tt.lost)
			}
			time.Sleep(time.Minute)
			link.stop()
			link.stop()
			if !slices.Equal(p.released, tt.want) || d.held.Load() != 0 {
				t.Errorf("%v: released %v, %d held; want %v, 0", tt.lost, p.released, d.held.Load(), tt.want)
			}
		})
	}
}

// TestConnectedAfterStop: a connection that is made while the link is stopped is closed.
func TestConnectedAfterStop(t *testing.T) {
	d := NewDialer(nil, overload.Budget{}, nil, nil)
	defer d.Close()
	near, far := net.Pipe()
	link := &tcpLink{tcpConnector: tcpConnector{dialer: d, hold: true}, report: func(c Connection) { t.Errorf("reported %+v", c) }}
	noError(t, d.acquire())
	link.stop()
	link.connected("a:1", near)
	if _, err := far.Write([]byte{0}); err == nil || d.held.Load() != 0 {
		t.Errorf("%v, %d held", err, d.held.Load())
	}
}
