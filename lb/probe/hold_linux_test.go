package probe

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holder is a Holder that keeps what it is called with.
type holder chan error

func (h holder) Lost(err error) { h <- err }

// connection returns both ends of a connection.
func connection(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	conn, err := net.Dial("tcp", l.Addr().String())
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	accepted, err := l.Accept()
	noError(t, err)
	t.Cleanup(func() { _ = accepted.Close() })
	client, isTCP := conn.(*net.TCPConn)
	server, alsoTCP := accepted.(*net.TCPConn)
	if !isTCP || !alsoTCP {
		t.Fatalf("connections are %T and %T", conn, accepted)
	}
	return client, server
}

func hold(t *testing.T, p *Poller, conn *net.TCPConn) (h holder, number int32) {
	t.Helper()
	h = make(holder, 1)
	number, ok := p.Hold(conn, h)
	if !ok {
		t.Fatal("not held")
	}
	return h, number
}

// What a held connection receives is discarded; its end is reported once, with the error
// of Read.
func TestHold(t *testing.T) {
	for _, reset := range []bool{false, true} {
		p := newPoller(t, nil)
		client, server := connection(t)
		h, _ := hold(t, p, client)
		_, err := server.Write(make([]byte, 1<<20)) // more than the buffers of both ends
		noError(t, err)
		if reset {
			noError(t, server.SetLinger(0))
		}
		noError(t, server.Close())
		err = <-h
		if op, ok := errors.AsType[*net.OpError](err); reset && (!ok || !errors.Is(err, unix.ECONNRESET) ||
			op.Error() != "read tcp "+client.LocalAddr().String()+"->"+client.RemoteAddr().String()+": read: connection reset by peer") {
			t.Errorf("%v; want a reset", err)
		}
		if !reset && !errors.Is(err, io.EOF) {
			t.Errorf("%v; want EOF", err)
		}
		noError(t, client.Close())
		noError(t, probe(p, listen(t, "127.0.0.1:0").Addr().String(), time.Minute)) // after all events
		if len(h) != 0 {
			t.Error("called twice")
		}
	}
}

// A connection that was released is not reported, and another one may have its number.
func TestRelease(t *testing.T) {
	p := newPoller(t, nil)
	client, server := connection(t)
	first, number := hold(t, p, client)
	p.Release(number, first)
	p.Release(number, first)
	client2, server2 := connection(t)
	second, again := hold(t, p, client2)
	if again != number {
		t.Errorf("number %d; want %d again", again, number)
	}
	p.Release(number, first) // which is the number of another one now
	noError(t, server.Close())
	noError(t, server2.Close())
	if err := <-second; !errors.Is(err, io.EOF) {
		t.Errorf("%v; want EOF", err)
	}
	if len(first) != 0 {
		t.Errorf("a released connection was reported: %v", <-first)
	}
}

// Close closes held connections and calls no holder.
func TestCloseHeld(t *testing.T) {
	p, err := NewPoller(nil)
	noError(t, err)
	client, server := connection(t)
	h, number := hold(t, p, client)
	p.Close()
	if _, err := io.Copy(io.Discard, server); err != nil {
		t.Error(err)
	}
	if _, ok := p.Hold(client, h); ok || len(h) != 0 {
		t.Errorf("held after Close; %d calls", len(h))
	}
	p.Release(number, h)
}

// Connections are held, released and lost from many goroutines.
func TestHoldConcurrently(t *testing.T) {
	p := newPoller(t, nil)
	var wg sync.WaitGroup
	for range 4 {
		l := listen(t, "127.0.0.1:0")
		wg.Go(func() {
			for i := range 100 {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				accepted, err := l.Accept()
				if err != nil {
					t.Error(err)
					return
				}
				tcp, _ := conn.(*net.TCPConn)
				h := make(holder, 1)
				number, ok := p.Hold(tcp, h)
				if !ok {
					t.Error("not held")
				}
				if i%2 == 0 {
					p.Release(number, h)
					_ = accepted.Close()
				} else {
					_ = accepted.Close()
					if err := <-h; !errors.Is(err, io.EOF) {
						t.Error(err)
					}
				}
				_ = conn.Close()
			}
		})
	}
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.freeHeld) != len(p.held) || len(p.held) > 4 {
		t.Errorf("%d numbers, of which %d are free; want at most 4, all free", len(p.held), len(p.freeHeld))
	}
}
