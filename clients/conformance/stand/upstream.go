package stand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Meter counts the requests of several upstreams together.
type Meter struct {
	InFlight, Max atomic.Int64
	upstreams     atomic.Uint64
}

func (m *Meter) enter() {
	n := m.InFlight.Add(1)
	for most := m.Max.Load(); n > most && !m.Max.CompareAndSwap(most, n); most = m.Max.Load() {
	}
}

// Upstream is an HTTP server on loopback that answers with its address, or behaves as
// Behave says.
type Upstream struct {
	Address string
	Tries   atomic.Int64 // requests that arrived
	Conns   atomic.Int64 // connections that were accepted

	meter    *Meter
	server   *http.Server
	listener net.Listener // of server
	closed   context.Context
	stop     context.CancelFunc
	socket   *socket // of an upstream that accepts nothing

	mu       sync.Mutex
	behavior behavior
	random   *rand.Rand
}

// behavior is what happens to a part of the requests. The others are answered.
type behavior struct {
	kind   string
	status int
	part   float64
}

// parse reads a behavior: "ok"; a status, such as "503"; "reset" and "close", which end the
// connection when the request has arrived; "half", which ends it within the body; "hang",
// which never answers; "1% 503" for a part of the requests.
func parse(text string) (behavior, error) {
	b := behavior{part: 1}
	if part, rest, ok := strings.Cut(text, "% "); ok {
		p, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return b, fmt.Errorf("behavior %q: %w", text, err)
		}
		b.part, text = p/100, rest
	}
	switch text {
	case "ok", "reset", "close", "half", "hang":
		b.kind = text
		return b, nil
	}
	status, err := strconv.Atoi(text)
	if err != nil || status < 200 || status > 599 {
		return b, fmt.Errorf("behavior %q is unknown", text)
	}
	b.kind, b.status = "status", status
	return b, nil
}

// NewUpstream starts an upstream. It never listens if it behaves like "refuse" (connections
// are refused) or "silent" (they are not answered at all, as if a firewall dropped them).
func NewUpstream(meter *Meter, behaves string) (*Upstream, error) {
	// The draws are the same in each run, and not those of another upstream: a retry is not to fail because the try did.
	u := &Upstream{meter: meter, random: rand.New(rand.NewPCG(1, meter.upstreams.Add(1)))}
	u.closed, u.stop = context.WithCancel(context.Background())
	if behaves == "refuse" || behaves == "silent" {
		s, err := newSocket(behaves == "silent")
		if err != nil {
			return nil, err
		}
		u.socket, u.Address = s, s.address
		return u, nil
	}
	if err := u.Behave(behaves); err != nil {
		return nil, err
	}
	l, err := listen()
	if err != nil {
		return nil, err
	}
	u.Address = l.Addr().String()
	u.serve(l)
	return u, nil
}

// listen takes a port that no connection gets as its own while an upstream is stopped: one below the ephemeral ports.
func listen() (net.Listener, error) {
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(22_000))) //nolint:noctx // it does not wait
		if !errors.Is(err, syscall.EADDRINUSE) {
			return l, err
		}
	}
}

func (u *Upstream) serve(l net.Listener) {
	u.listener = l
	u.server = &http.Server{Handler: u, ReadHeaderTimeout: Patience, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			u.Conns.Add(1)
		}
	}}
	go func() { _ = u.server.Serve(l) }() // ends with Close
}

// Fail ends the upstream as a fault does: "stop" lets requests come to their end, "kill" does not, "silent" drops SYN as
// well, and "resets" accepts connections and ends each.
func (u *Upstream) Fail(fault string) (err error) {
	if fault == "stop" {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		_ = u.listener.Close()
		return u.server.Shutdown(ctx)
	}
	u.end()
	switch fault {
	case "silent":
		u.socket, err = newSocketAt(u.Address, true)
	case "resets":
		var l net.Listener
		if l, err = net.Listen("tcp", u.Address); err == nil { //nolint:noctx // it does not wait
			u.listener = l
			u.server = &http.Server{ReadHeaderTimeout: Patience, ConnState: func(conn net.Conn, state http.ConnState) {
				if tcp, ok := conn.(*net.TCPConn); ok && state == http.StateNew {
					_ = tcp.SetLinger(0)
					_ = tcp.Close()
				}
			}}
			go func() { _ = u.server.Serve(l) }() // ends with Return
		}
	}
	return err
}

// Return ends the fault.
func (u *Upstream) Return() error {
	if u.socket != nil {
		u.socket.close()
		u.socket = nil
	}
	u.end()
	l, err := net.Listen("tcp", u.Address) //nolint:noctx // it does not wait
	if err == nil {
		u.serve(l)
	}
	return err
}

// Behave changes what the upstream does.
func (u *Upstream) Behave(text string) error {
	b, err := parse(text)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.behavior = b
	return nil
}

// Close ends the upstream with its connections.
func (u *Upstream) Close() {
	u.stop()
	if u.socket != nil {
		u.socket.close()
		return
	}
	u.end()
}

// end closes the server, and its listener, which Serve may not have taken yet.
func (u *Upstream) end() {
	_ = u.listener.Close()
	_ = u.server.Close()
}

func (u *Upstream) next() behavior {
	u.mu.Lock()
	defer u.mu.Unlock()
	if b := u.behavior; b.part == 1 || u.random.Float64() < b.part {
		return b
	}
	return behavior{kind: "ok"}
}

// ServeHTTP answers a request.
func (u *Upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.meter.enter()
	defer u.meter.InFlight.Add(-1)
	u.Tries.Add(1)
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	switch b := u.next(); b.kind {
	case "status":
		u.wait(r, slowness(r))
		w.WriteHeader(b.status)
		_, _ = io.WriteString(w, u.Address)
	case "hang":
		u.wait(r, time.Hour)
	case "reset", "close", "half":
		end(w, b.kind)
	default:
		u.answer(w, r, string(body))
	}
}

func (u *Upstream) answer(w http.ResponseWriter, r *http.Request, body string) {
	switch r.URL.Path {
	case "/slow":
		u.wait(r, slowness(r))
		_, _ = io.WriteString(w, u.Address)
	case "/echo":
		_, _ = fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.URL.RawQuery, body)
	default:
		_, _ = io.WriteString(w, u.Address)
	}
}

// slowness is how long a request for /slow?ms= takes.
func slowness(r *http.Request) time.Duration {
	ms, err := strconv.Atoi(r.URL.Query().Get("ms"))
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

// wait returns earlier if the caller has gone or the upstream is closed.
func (u *Upstream) wait(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	case <-u.closed.Done():
	}
}

// end ends a connection: reset with RST, close with FIN, half within the body.
func end(w http.ResponseWriter, how string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	switch how {
	case "half":
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of")
	case "reset":
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
}
