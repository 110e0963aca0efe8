package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func TestMain(m *testing.M) {
	if serveProbes() {
		return
	}
	goleak.VerifyTestMain(m)
}

// result is a target that keeps what it is called with.
type result chan error

func (r result) Probed(err error) { r <- err }

func newPoller(tb testing.TB, permit func(netip.AddrPort) error) *Poller {
	tb.Helper()
	p, err := NewPoller(permit)
	noError(tb, err)
	tb.Cleanup(p.Close)
	return p
}

func probe(p *Poller, address string, limit time.Duration) error {
	r := make(result, 1)
	p.Probe(netip.MustParseAddrPort(address), limit, r)
	return <-r
}

func listen(tb testing.TB, address string) net.Listener {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", address)
	noError(tb, err)
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// A server does not see a probe: the first connection that it accepts is the one of a
// dial after the probes.
func TestServerAcceptsNoProbe(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			p, l := newPoller(t, nil), listen(t, address)
			for range 10 {
				noError(t, probe(p, l.Addr().String(), time.Minute))
			}
			conn, err := net.Dial("tcp", l.Addr().String())
			noError(t, err)
			defer conn.Close() //nolint:errcheck // nothing depends on it
			accepted, err := l.Accept()
			noError(t, err)
			defer accepted.Close() //nolint:errcheck // nothing depends on it
			if accepted.RemoteAddr().String() != conn.LocalAddr().String() {
				t.Errorf("accepted a connection of %v; want that of %v", accepted.RemoteAddr(), conn.LocalAddr())
			}
		})
	}
}

// full returns an address that accepts no more connections: the backlog of its
// listener is full, and the system drops what is sent to it.
func full(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	noError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	noError(t, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	noError(t, unix.Listen(fd, 0)) // room for one
	own, err := unix.Getsockname(fd)
	noError(t, err)
	address := addressOf(own).String()
	conn, err := net.Dial("tcp", address)
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return address
}

func refusing(t *testing.T) string {
	l := listen(t, "127.0.0.1:0")
	noError(t, l.Close())
	return l.Addr().String()
}

// The errors are those of net.Dialer.
func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		name, address string
		is            error
	}{
		{"refused", refusing(t), unix.ECONNREFUSED},
		{"not answered", full(t), nil},
		{"IPv4 in IPv6", "[::ffff:127.0.0.1]:" + portOf(t, refusing(t)), unix.ECONNREFUSED},
		{"broadcast", "255.255.255.255:1", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const limit = 50 * time.Millisecond
			got := probe(newPoller(t, nil), tt.address, limit)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, want := new(net.Dialer).DialContext(ctx, "tcp", tt.address)
			if got == nil || want == nil || got.Error() != want.Error() {
				t.Fatalf("%v; net.Dialer returns %v", got, want)
			}
			if tt.is != nil && (!errors.Is(got, tt.is) || !errors.Is(want, tt.is)) {
				t.Errorf("%v is not %v", got, tt.is)
			}
			var is, wantIs net.Error
			if !errors.As(got, &is) || !errors.As(want, &wantIs) || is.Timeout() != wantIs.Timeout() {
				t.Errorf("%v: Timeout differs from net.Dialer's", got)
			}
		})
	}
}

func portOf(t *testing.T, address string) string {
	_, port, err := net.SplitHostPort(address)
	noError(t, err)
	return port
}

// An address that is not permitted gets no socket.
func TestPermit(t *testing.T) {
	denied := errors.New("denied")
	l := listen(t, "127.0.0.1:0")
	var asked []netip.AddrPort
	p := newPoller(t, func(a netip.AddrPort) error {
		asked = append(asked, a)
		return denied
	})
	if err := probe(p, "[::ffff:127.0.0.1]:"+portOf(t, l.Addr().String()), time.Minute); !errors.Is(err, denied) {
		t.Errorf("%v; want that it is denied", err)
	}
	if len(asked) != 1 || asked[0].String() != l.Addr().String() {
		t.Errorf("asked for %v", asked)
	}
}

// The cause of a shortage of lbd is in the error.
func TestShortage(t *testing.T) {
	p := newPoller(t, nil)
	var limit unix.Rlimit
	noError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	t.Cleanup(func() { noError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) })
	noError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: limit.Max}))
	if err := probe(p, "127.0.0.1:1", time.Minute); !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v; want EMFILE", err)
	}
}

// established leaves a socket that resets the connection only if the server cannot
// have accepted it, and recognizes a connection to itself.
func TestEstablished(t *testing.T) {
	socket := func(t *testing.T, own *unix.SockaddrInet4, to netip.AddrPort) int {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		noError(t, err)
		if own != nil {
			noError(t, unix.Bind(fd, own))
			got, err := unix.Getsockname(fd)
			noError(t, err)
			to = addressOf(got)
		}
		noError(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}))
		noError(t, unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}))
		return fd
	}
	t.Run("the server knows of the connection", func(t *testing.T) {
		l := listen(t, "127.0.0.1:0")
		to := netip.MustParseAddrPort(l.Addr().String())
		fd := socket(t, nil, to)
		if connected, err := established(fd, to); !connected || err != nil {
			t.Errorf("%v, %v", connected, err)
		}
		conn, err := l.Accept()
		noError(t, err)
		defer conn.Close() //nolint:errcheck // nothing depends on it
		noError(t, unix.Close(fd))
		if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil {
			t.Errorf("the server read %d bytes, %v; want an end", n, err)
		}
	})
	t.Run("to itself", func(t *testing.T) {
		fd := socket(t, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}, netip.AddrPort{})
		defer unix.Close(fd) //nolint:errcheck // nothing depends on it
		own, err := unix.Getsockname(fd)
		noError(t, err)
		if connected, err := established(fd, addressOf(own)); connected || !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%v, %v; want ECONNREFUSED", connected, err)
		}
	})
}

func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	noError(t, err)
	return len(files)
}

// Each of many concurrent probes has its own result, and all descriptors are closed.
func TestManyProbes(t *testing.T) {
	before := descriptors(t)
	p, err := NewPoller(nil)
	noError(t, err)
	good, bad, silent := listen(t, "127.0.0.1:0").Addr().String(), refusing(t), full(t)
	held := descriptors(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				switch (i + j) % 3 {
				case 0:
					if err := probe(p, good, time.Minute); err != nil {
						t.Error(err)
					}
				case 1:
					if err := probe(p, bad, time.Minute); !errors.Is(err, unix.ECONNREFUSED) {
						t.Error(err)
					}
				default:
					if err := probe(p, silent, time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := descriptors(t); n != held {
		t.Errorf("%d descriptors after the probes; want %d", n, held)
	}
	p.Close()
	if n := descriptors(t); n != held-2 && n != held-1 { // the epoll instance; Go's netpoller may have its own
		t.Errorf("%d descriptors after Close; %d before all", n, before)
	}
}

// Close ends probes under way and those that wait, and calls none of their targets.
func TestClose(t *testing.T) {
	silent := full(t)
	p, err := NewPoller(nil)
	noError(t, err)
	noError(t, probe(p, listen(t, "127.0.0.1:0").Addr().String(), time.Minute))
	before := descriptors(t)
	r := make(result, 200)
	for range 100 {
		p.Probe(netip.MustParseAddrPort(silent), time.Hour, r)
	}
	probed := make(result, 1) // after it, the others have sockets
	p.Probe(netip.MustParseAddrPort(refusing(t)), time.Hour, probed)
	if err := <-probed; err == nil {
		t.Error("connected to an address that refuses")
	}
	for range 100 {
		p.Probe(netip.MustParseAddrPort(silent), time.Hour, r)
	}
	p.Close()
	p.Close()
	p.Probe(netip.MustParseAddrPort(silent), time.Nanosecond, r)
	if len(r) != 0 {
		t.Errorf("%d targets were called; the first with %v", len(r), <-r)
	}
	if n := descriptors(t); n != before-1 {
		t.Errorf("%d descriptors after Close; want %d", n, before-1)
	}
}

// serveProbes accepts and closes connections in the process that [serverProcess]
// starts.
func serveProbes() bool {
	n, err := strconv.Atoi(os.Getenv("LBD_TEST_PROBE_SERVERS"))
	if err != nil {
		return false
	}
	var ls []net.Listener
	for i := range n {
		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 7, byte(i >> 8), byte(i)}), 0).String())
		if err != nil {
			return true
		}
		ls = append(ls, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
	}
	for _, l := range ls {
		_, _ = os.Stdout.WriteString(l.Addr().String() + "\n")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return true
}
