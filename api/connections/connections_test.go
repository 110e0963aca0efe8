package connections

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// halfPipe is one side of a pipe, of which reading can be ended as of a TCP connection.
type halfPipe struct {
	net.Conn
	peer string

	mu    sync.Mutex
	ended bool
}

func (p *halfPipe) CloseRead() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	return p.Conn.SetReadDeadline(time.Now())
}

func (p *halfPipe) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	return p.Conn.SetReadDeadline(t)
}

func (p *halfPipe) SetDeadline(t time.Time) error {
	return errors.Join(p.SetReadDeadline(t), p.SetWriteDeadline(t))
}

func (p *halfPipe) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.ended {
		err = io.EOF
	}
	return n, err
}

// pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	errs   chan error
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case err := <-p.errs:
		return nil, err
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// house is a server with so much room. A request for /wait is answered when the test
// says so.
type house struct {
	t        *testing.T
	listener *pipes
	limiter  *Limiter
	answer   chan struct{}
	full     int
	peer     string // of connections from now on
}

// peerOf returns the peer of a connection.
func peerOf(c net.Conn) string { return c.(*halfPipe).peer } //nolint:errcheck // there are no others

func open(t *testing.T, most int, test func(t *testing.T, h *house)) {
	t.Helper()
	openFor(t, Options{Max: most}, test)
}

func openFor(t *testing.T, o Options, test func(t *testing.T, h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{t: t, answer: make(chan struct{}), listener: &pipes{
			conns: make(chan net.Conn, 16), errs: make(chan error), closed: make(chan struct{}),
		}}
		o.Full = func() { h.full++ }
		o.Lacking = func(err error) bool { return errors.Is(err, syscall.EMFILE) }
		h.limiter = New(o)
		server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/wait":
				<-h.answer
			case "/large":
				_, _ = w.Write(make([]byte, 1<<20))
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})}
		h.limiter.Attach(server)
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(h.limiter.Listen(h.listener)) }()
		test(t, h)
		_ = server.Close()
		<-done
	})
}

// visitor is a connection to the house.
type visitor struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

// connect connects and sleeps a second: the next has been idle for less.
func (h *house) connect() *visitor {
	v := h.connectNow()
	time.Sleep(time.Second)
	return v
}

func (h *house) connectNow() *visitor {
	near, far := net.Pipe()
	h.listener.conns <- &halfPipe{Conn: far, peer: h.peer}
	return &visitor{h.t, near, bufio.NewReader(near)}
}

func (v *visitor) ask(path string) {
	v.t.Helper()
	go func() { _, _ = fmt.Fprintf(v, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path) }()
	synctest.Wait()
}

// answered returns the status of the answer, or "closed".
func (v *visitor) answered() string {
	a, err := http.ReadResponse(v.answers, nil)
	if err != nil {
		return "closed"
	}
	body, _ := io.ReadAll(a.Body)
	_ = a.Body.Close()
	synctest.Wait() // until the server knows that it is done
	if a.StatusCode != http.StatusOK {
		return a.Status + " " + a.Header.Get("Retry-After") + " " + string(body)
	}
	return a.Status
}

// expect checks the status of the answer, or "closed".
func (v *visitor) expect(want string) {
	v.t.Helper()
	if got := v.answered(); got != want {
		v.t.Errorf("got %s, want %s", got, want)
	}
}

// serves checks that a request is answered.
func (v *visitor) serves() {
	v.t.Helper()
	v.ask("/")
	v.expect("200 OK")
}

func (v *visitor) get() string {
	v.t.Helper()
	v.ask("/")
	return v.answered()
}

func TestTheLongestIdleMakesRoom(t *testing.T) {
	open(t, 3, func(t *testing.T, h *house) {
		first, second, third := h.connect(), h.connect(), h.connect()
		for _, v := range []*visitor{second, first, third} { // second has been idle longest
			v.serves()
			time.Sleep(time.Second)
		}
		fourth := h.connect()
		for _, v := range []*visitor{first, third, fourth} {
			v.serves()
		}
		second.expect("closed")
		synctest.Wait()
		want := `
# HELP lbd_http_connections Open API connections, by state: active during a request, else idle.
# TYPE lbd_http_connections gauge
lbd_http_connections{state="active"} 0
lbd_http_connections{state="idle"} 3
# HELP lbd_http_connections_evicted_total Idle API connections closed at the limit, to admit new ones.
# TYPE lbd_http_connections_evicted_total counter
lbd_http_connections_evicted_total 1
# HELP lbd_http_connections_refused_total New API connections rejected with 503 because the limit was reached and none was idle.
# TYPE lbd_http_connections_refused_total counter
lbd_http_connections_refused_total 0
# HELP lbd_http_max_connections Maximum number of API connections (--max-connections).
# TYPE lbd_http_max_connections gauge
lbd_http_max_connections 3
`
		if err := testutil.CollectAndCompare(h.limiter, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	})
}

// TestThousandsOfIdle: each new connection closes one, in their order, however many
// one look finds.
func TestThousandsOfIdle(t *testing.T) {
	const most = 2 * maxCandidates
	open(t, most, func(t *testing.T, h *house) {
		var all []*visitor
		for range most + maxCandidates + 10 {
			v := h.connect()
			v.serves()
			all = append(all, v)
		}
		for i, v := range all {
			got := "closed"
			if i >= len(all)-most {
				got = v.get()
			}
			if want := map[bool]string{true: "closed", false: "200 OK"}[i < len(all)-most]; got != want {
				t.Fatalf("connection %d: %s, want %s", i, got, want)
			}
		}
		if n := h.limiter.evicted.Load(); n != maxCandidates+10 {
			t.Errorf("%d were closed", n)
		}
	})
}

// TestRequestsUnderWayAreNotIdle: they keep their connections. A new one waits for
// room, and is refused when there is none in time; the next is refused sooner.
func TestRequestsUnderWayAreNotIdle(t *testing.T) {
	open(t, 2, func(t *testing.T, h *house) {
		a, b := h.connect(), h.connect()
		a.ask("/wait")
		b.ask("/wait")
		start := time.Now()
		for i, within := range []time.Duration{AdmitWait, evictWait} {
			begin := time.Now()
			c := h.connectNow()
			got := c.answered()
			if !strings.HasPrefix(got, `503 Service Unavailable 1 {"type":"about:blank"`) || !strings.HasSuffix(got, "later\"}\n") {
				t.Errorf("refused with %s", got)
			}
			if took := time.Since(begin); took != within {
				t.Errorf("connection %d was refused after %v, want %v", i, took, within)
			}
			_ = c.Close()
		}
		if h.full != 2 || time.Since(start) > 2*time.Second {
			t.Errorf("%d were reported", h.full)
		}
		// One that waits has the place of one that becomes idle.
		c := h.connectNow()
		c.ask("/")
		h.answer <- struct{}{}
		h.answer <- struct{}{}
		if x, y := a.answered(), b.answered(); x != "200 OK" || y != "200 OK" {
			t.Errorf("those under way: %s, %s", x, y)
		}
		c.expect("200 OK")
	})
}

// TestSlowBodies: connections whose callers do not send the rest of a request make room
// for new ones, the longest silent first. Those that go on sending do not.
func TestSlowBodies(t *testing.T) {
	open(t, 4, func(t *testing.T, h *house) {
		put := func(v *visitor) {
			go func() { _, _ = io.WriteString(v, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n1") }()
			synctest.Wait()
		}
		sending, first, second, waiting := h.connect(), h.connect(), h.connect(), h.connect()
		waiting.ask("/wait")
		for _, v := range []*visitor{sending, first, second} {
			put(v)
			time.Sleep(time.Second)
		}
		go func() { _, _ = io.WriteString(sending, "2") }()
		go func() { _, _ = io.Copy(io.Discard, first) }()
		synctest.Wait()
		h.connect().serves()
		for v, rest := range map[*visitor]string{sending: "3", second: "23"} {
			go func() { _, _ = io.WriteString(v, rest) }()
			v.expect("200 OK")
		}
		h.answer <- struct{}{}
		if got := waiting.answered(); got != "200 OK" || h.limiter.evicted.Load() != 1 {
			t.Errorf("who waited: %s; %d were closed", got, h.limiter.evicted.Load())
		}
	})
}

// TestUnreadResponses: a connection whose caller does not read the response makes room after
// a second, and one whose caller reads slowly stays.
func TestUnreadResponses(t *testing.T) {
	open(t, 3, func(t *testing.T, h *house) {
		slow, unread, waiting := h.connect(), h.connect(), h.connect()
		waiting.ask("/wait")
		slow.ask("/large")
		read := make([]byte, 2*writeBytes)
		begin := read[:8<<10] // of the response, and of its first part
		if _, err := io.ReadFull(slow, begin); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		unread.ask("/large")
		time.Sleep(patience)
		if _, err := io.ReadFull(slow, read[len(begin):]); err != nil {
			t.Fatal(err)
		}
		slow.answers.Reset(io.MultiReader(bytes.NewReader(read), slow))
		if got := h.connect().get(); got != "200 OK" {
			t.Errorf("beside a caller that does not read: %s", got)
		}
		if got := slow.answered(); got != "200 OK" {
			t.Errorf("who reads slowly: %s", got)
		}
		if n, err := io.Copy(io.Discard, unread); n != 0 || err != nil {
			t.Errorf("who does not read: %d bytes, %v", n, err)
		}
		h.answer <- struct{}{}
		if got := waiting.answered(); got != "200 OK" || h.limiter.evicted.Load() != 1 {
			t.Errorf("who waited: %s; %d were closed", got, h.limiter.evicted.Load())
		}
	})
}

// TestBodiesWhileDraining: a request whose body has not come has its time.
func TestBodiesWhileDraining(t *testing.T) {
	open(t, 4, func(t *testing.T, h *house) {
		v := h.connect()
		go func() { _, _ = io.WriteString(v, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n") }()
		synctest.Wait()
		_ = h.listener.Close()
		done := make(chan struct{})
		go func() { defer close(done); h.limiter.Drain(t.Context(), time.Second) }()
		time.Sleep(10 * time.Second)
		go func() { _, _ = io.WriteString(v, "1") }()
		v.expect("200 OK")
		<-done
	})
}

// TestRefusalsAreFew: connections that are refused and do not go away hold few
// descriptors beyond the limit.
func TestRefusalsAreFew(t *testing.T) {
	const most = 32
	open(t, most, func(t *testing.T, h *house) {
		all := make([]*visitor, most)
		for i := range all {
			all[i] = h.connect()
			all[i].ask("/wait")
		}
		for range 10 {
			h.connectNow()
		}
		time.Sleep(AdmitWait + 15*evictWait)
		h.limiter.mu.Lock()
		if n := h.limiter.refusing; n != most/refusingPart {
			t.Errorf("%d are being refused", n)
		}
		h.limiter.mu.Unlock()
		time.Sleep(2 * AdmitWait)
		for _, v := range all {
			h.answer <- struct{}{}
			v.expect("200 OK")
		}
	})
}

// TestShortageWhileAccepting: an idle connection is closed, and accepting goes on. It goes on after an
// error of a connection, too, which is reported; an error of the listener ends it.
func TestShortageWhileAccepting(t *testing.T) {
	open(t, 10, func(t *testing.T, h *house) {
		a, b := h.connect(), h.connect()
		h.listener.errs <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		c := h.connect()
		if x, y, z := a.answered(), b.get(), c.get(); x != "closed" || y != "200 OK" || z != "200 OK" {
			t.Errorf("%s, %s, %s", x, y, z)
		}
	})
	for _, permanent := range []error{syscall.EBADF, syscall.EINVAL, net.ErrClosed} {
		synctest.Test(t, func(t *testing.T) {
			var failed []error
			l := New(Options{Lacking: func(error) bool { return false }, AcceptFailed: func(err error) { failed = append(failed, err) }})
			p := &pipes{errs: make(chan error, 2)}
			p.errs <- &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EPERM)}
			p.errs <- &net.OpError{Op: "accept", Err: permanent}
			if _, err := l.Listen(p).Accept(); !errors.Is(err, permanent) {
				t.Errorf("accepting ends with %v, want %v", err, permanent)
			}
			if len(failed) != 1 || !errors.Is(failed[0], syscall.EPERM) {
				t.Errorf("%v is reported", failed)
			}
		})
	}
}

// TestDrain: connections end once they have been idle for a while, those of requests
// under way when that is so after their answer.
func TestDrain(t *testing.T) {
	open(t, 10, func(t *testing.T, h *house) {
		long, short, busy := h.connect(), h.connect(), h.connect()
		short.get()
		busy.ask("/wait")
		_ = h.listener.Close()
		done := make(chan time.Duration)
		go func() {
			start := time.Now()
			h.limiter.Drain(t.Context(), 2*time.Second)
			done <- time.Since(start)
		}()
		long.expect("closed")
		time.Sleep(1500 * time.Millisecond)
		short.serves()
		short.expect("closed")
		time.Sleep(time.Minute)
		h.answer <- struct{}{}
		busy.expect("200 OK")
		if took := <-done; took < time.Minute+5*time.Second || took > time.Minute+7*time.Second {
			t.Errorf("all were closed after %v", took)
		}
	})
}

// TestDrainEndsInTime: a request that goes on holds nothing up for longer.
func TestDrainEndsInTime(t *testing.T) {
	open(t, 10, func(t *testing.T, h *house) {
		busy := h.connect()
		busy.ask("/wait")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		h.limiter.Drain(ctx, 0)
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v", took)
		}
		h.answer <- struct{}{}
		busy.expect("200 OK")
	})
}

// TestRetireAnswersWhatWasReceived holds retire against TCP and unix sockets: what has
// come is read, then the end, and the answer goes out.
func TestRetireAnswersWhatWasReceived(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": t.TempDir() + "/s"} {
		t.Run(network, func(t *testing.T) {
			inner, err := new(net.ListenConfig).Listen(t.Context(), network, address)
			noError(t, err)
			defer inner.Close()
			near, err := new(net.Dialer).DialContext(t.Context(), network, inner.Addr().String())
			noError(t, err)
			defer func() { _ = near.Close() }()
			if _, err := io.WriteString(near, "request"); err != nil {
				t.Fatal(err)
			}
			accepted, err := New(Options{Max: 1}).Listen(inner).Accept()
			noError(t, err)
			far, ok := accepted.(*conn)
			if !ok {
				t.Fatalf("accepted a %T", accepted)
			}
			buf := make([]byte, 7)
			if _, err := io.ReadFull(far, buf[:1]); err != nil { // it has come
				t.Fatal(err)
			}
			far.retire()
			far.retire()
			rest, err := io.ReadAll(far)
			if err != nil || string(rest) != "equest" {
				t.Fatalf("read %q, %v", rest, err)
			}
			if _, err := io.WriteString(far, "answer"); err != nil {
				t.Fatal(err)
			}
			noError(t, errors.Join(far.CloseWrite(), far.Close()))
			if got, err := io.ReadAll(near); err != nil || string(got) != "answer" {
				t.Errorf("answered %q, %v", got, err)
			}
		})
	}
}

// TestHTTP2: a connection of HTTP/2 is idle while it has no stream.
func TestHTTP2(t *testing.T) {
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	noError(t, err)
	l := New(Options{Max: 1, Full: func() {}, Lacking: func(error) bool { return false }})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	arrived, answer := make(chan struct{}), make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Protocols: protocols, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			arrived <- struct{}{}
			<-answer
		}
	})}
	l.Attach(server)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l.Listen(inner)) }()
	client := func() *http.Client { return &http.Client{Transport: &http.Transport{Protocols: protocols}} }
	get := func(c *http.Client, path string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+inner.Addr().String()+path, http.NoBody)
		if err != nil {
			return err
		}
		a, err := c.Do(r)
		if err != nil {
			return err
		}
		return a.Body.Close()
	}
	a, b := client(), client()
	failed := make(chan error, 1)
	go func() { failed <- get(a, "/wait") }()
	<-arrived
	if idle, active := l.count(); idle != 0 || active != 1 {
		t.Errorf("%d idle, %d active with a stream", idle, active)
	}
	if err := get(b, "/"); err == nil {
		t.Error("a second connection was admitted beside a stream")
	}
	answer <- struct{}{}
	if err := <-failed; err != nil {
		t.Error(err)
	}
	if err := get(b, "/"); err != nil { // a's is idle now
		t.Error(err)
	}
	if n := l.evicted.Load(); n != 1 {
		t.Errorf("%d were closed", n)
	}
	a.CloseIdleConnections()
	b.CloseIdleConnections()
	_ = server.Close()
	<-done
}
