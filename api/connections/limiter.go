// Package connections limits the open connections of the API's callers, so that lbd keeps
// file descriptors for itself. At the limit, it closes the connection that has been idle
// longest, or whose caller neither sends nor reads what it should.
package connections

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// AdmitWait is the maximum time that a new connection waits if no connection is idle. It
	// does not wait if the last connection was rejected.
	AdmitWait = time.Second
	// evictWait is the time after which another connection is evicted: the first one may
	// have received a request at the same moment.
	evictWait = 20 * time.Millisecond
	// acceptPause is the pause after a shortage of descriptors.
	acceptPause = 50 * time.Millisecond
	// patience is the time after which a connection may be evicted whose caller sends nothing
	// of a request body, or reads nothing of a response.
	patience = time.Second
	// writeBytes is the maximum size of one write to a connection.
	writeBytes = 64 << 10
	// maxCandidates is the maximum number of idle connections that one search returns.
	maxCandidates = 256
)

// Options configure a Limiter.
type Options struct {
	// Max is the maximum number of connections.
	Max int
	// MaxPeer is the maximum number of connections of one peer; 0 for no limit. Peer returns the
	// name of the peer of a connection; empty for one without a limit.
	MaxPeer int
	Peer    func(net.Conn) string
	// PeerFull is called for each connection that is rejected because its peer has MaxPeer others,
	// and none of them is idle.
	PeerFull func(peer string)
	// Full is called for each connection that is rejected because none is idle.
	Full func()
	// Lacking reports whether an error is a shortage of descriptors or the like.
	Lacking func(error) bool
	// AcceptFailed is called for each other error of Accept after which Accept is retried; may be
	// nil.
	AcceptFailed func(error)
}

// Limiter limits the connections of all listeners. It is safe for concurrent use.
type Limiter struct {
	options Options
	start   time.Time

	evicted, refused         atomic.Uint64
	peerEvicted, peerRefused atomic.Uint64 // because of MaxPeer
	waiting                  atomic.Int64  // new connections that wait
	full                     atomic.Bool   // the last one was rejected

	mu         sync.Mutex // guards the rest
	open       map[*conn]struct{}
	peers      map[string]*peer
	freed      chan struct{} // closed when a connection may be admitted; nil if none waits
	candidates []candidate   // idle connections, longest idle first, at the last search
	refusing   int
}

// candidate is a connection, and its idle and writing fields at the search.
type candidate struct {
	conn          *conn
	idle, writing int64
}

// since returns the time since which the caller has sent or read nothing.
func (c candidate) since() int64 { return max(c.idle, -c.idle, c.writing) }

// New returns a Limiter without connections.
func New(o Options) *Limiter {
	return &Limiter{options: o, start: time.Now(), open: make(map[*conn]struct{}), peers: make(map[string]*peer)}
}

// conn is one connection.
type conn struct {
	net.Conn

	limiter *Limiter
	peer    *peer // nil without a limit, and once it is retired; guarded by limiter.mu
	// idle is the time (limiter.now) since which the connection is idle; 0 during a request,
	// and negative while the server waits for the body of a request.
	idle atomic.Int64
	// writing is the time since which a Write waits for the caller to read; 0 for none.
	writing atomic.Int64
	retired atomic.Bool
	closed  sync.Once
}

// now returns the time since start, which is never 0.
func (l *Limiter) now() int64 { return int64(time.Since(l.start)) + 1 }

// Attach tracks the connections of a server, which must have its Handler and must serve
// listeners of [Limiter.Listen]. It sets ConnState and ConnContext.
func (l *Limiter) Attach(s *http.Server) {
	s.ConnState = l.stateChanged
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, own(c))
	}
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A connection of HTTP/2 may have other requests while it waits for a body.
		if own, _ := r.Context().Value(connKey{}).(*conn); own != nil && r.ProtoMajor == 1 && r.Body != http.NoBody {
			r.Body = &body{r.Body, own}
		}
		next.ServeHTTP(w, r)
	})
}

// NetConn returns the connection that c counts.
func (c *conn) NetConn() net.Conn { return c.Conn }

// own returns the connection of a Limiter that c is, or that TLS connection c uses; nil if
// there is none.
func own(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	counted, _ := c.(*conn)
	return counted
}

// connKey is the context key of the connection.
type connKey struct{}

// body is the body of a request.
type body struct {
	io.ReadCloser

	conn *conn
}

// Read marks the connection as waiting for its caller.
func (b *body) Read(p []byte) (int, error) {
	b.conn.idle.Store(-b.conn.limiter.now())
	defer b.conn.idle.Store(0)
	return b.ReadCloser.Read(p)
}

// stateChanged is the ConnState hook.
func (l *Limiter) stateChanged(c net.Conn, s http.ConnState) {
	own := own(c)
	if own == nil {
		return
	}
	switch s {
	case http.StateActive:
		own.Active()
	case http.StateIdle:
		own.Idle(time.Now())
	default:
	}
}

// wake wakes the connections that wait.
func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// Write marks the connection as waiting for its caller, again for each part that the caller
// has read.
func (c *conn) Write(p []byte) (n int, err error) {
	defer c.writing.Store(0)
	for {
		c.writing.Store(c.limiter.now())
		part := p[n:min(len(p), n+writeBytes)]
		written, err := c.Conn.Write(part)
		if n += written; err != nil || n == len(p) {
			return n, err
		}
	}
}

// Close closes the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() {
		c.limiter.mu.Lock()
		delete(c.limiter.open, c)
		c.limiter.leavePeer(c)
		c.limiter.mu.Unlock()
		c.limiter.wake()
	})
	return err
}

// CloseWrite closes the writing side. The HTTP server calls it before Close.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// retire closes the connection gracefully: the server answers a request that it has already
// received, and closes the connection when there is no other. It is called under limiter.mu.
func (c *conn) retire() {
	if c.retired.Swap(true) {
		return
	}
	c.limiter.leavePeer(c)
	if half, ok := c.Conn.(interface{ CloseRead() error }); ok && half.CloseRead() == nil {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Now())
}

// admit adds c when there is room. It reports false if there is none in time.
func (l *Limiter) admit(c *conn) bool {
	wait := AdmitWait
	if l.full.Load() {
		wait = evictWait
	}
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	for deadline := time.Now().Add(wait); ; {
		room, freed := l.enter(c)
		if room {
			l.full.Store(false)
			return true
		}
		left := time.Until(deadline)
		if l.evict() {
			left = min(left, evictWait)
		}
		select {
		case <-freed:
		case <-time.After(left):
			if time.Now().Before(deadline) {
				continue
			}
			if room, _ := l.enter(c); room {
				return true
			}
			l.full.Store(true)
			return false
		}
	}
}

// enter adds c if there is room; else freed is closed when there may be room.
func (l *Limiter) enter(c *conn) (room bool, freed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) < l.options.Max {
		l.open[c] = struct{}{}
		return true, nil
	}
	if l.freed == nil {
		l.freed = make(chan struct{})
	}
	return false, l.freed
}

// evict retires the connection that has been idle longest, or has waited longest for its
// caller. It reports false if there is none.
func (l *Limiter) evict() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.evictFrom(&l.candidates, l.open) {
		return false
	}
	l.evicted.Add(1)
	return true
}

// evictFrom is evict for a set of connections with its candidates. It is called under mu.
func (l *Limiter) evictFrom(candidates *[]candidate, conns map[*conn]struct{}) bool {
	for searched := false; ; searched = true {
		for len(*candidates) > 0 {
			next := (*candidates)[0]
			*candidates = (*candidates)[1:]
			if _, open := conns[next.conn]; open && next.conn.idle.Load() == next.idle && next.conn.writing.Load() == next.writing && !next.conn.retired.Load() {
				next.conn.retire()
				if next.writing > 0 {
					_ = next.conn.SetWriteDeadline(time.Now()) // the response ends incomplete
				}
				return true
			}
		}
		if searched {
			return false
		}
		*candidates = l.search((*candidates)[:0], conns)
	}
}

// search returns the connections that have been idle, or have waited for their caller, longest.
func (l *Limiter) search(found []candidate, conns map[*conn]struct{}) []candidate {
	blocked := l.now() - int64(patience)
	for c := range conns {
		next := candidate{c, c.idle.Load(), c.writing.Load()}
		waits := next.idle < 0 || next.writing > 0
		if (next.idle > 0 && !waits || waits && next.since() <= blocked) && !c.retired.Load() {
			found = append(found, next)
		}
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.since(), b.since()) })
	return slices.Clone(found[:min(len(found), maxCandidates)])
}

// Drain retires every connection that has been idle for quiet. It returns when none is left
// or ctx ends. The listeners must be closed.
func (l *Limiter) Drain(ctx context.Context, quiet time.Duration) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for l.retireIdle(quiet) > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// retireIdle retires idle connections, and returns the number of all connections.
func (l *Limiter) retireIdle(quiet time.Duration) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if since := c.idle.Load(); since > 0 && l.now()-since >= int64(quiet) {
			c.retire()
		}
	}
	return len(l.open)
}

var (
	connectionsDesc = prometheus.NewDesc("lbd_http_connections",
		"Open API connections, by state: active during a request, else idle.", []string{"state"}, nil)
	maxDesc = prometheus.NewDesc("lbd_http_max_connections",
		"Maximum number of API connections (--max-connections).", nil, nil)
	evictedDesc = prometheus.NewDesc("lbd_http_connections_evicted_total",
		"Idle API connections closed at the limit, to admit new ones.", nil, nil)
	refusedDesc = prometheus.NewDesc("lbd_http_connections_refused_total",
		"New API connections rejected with 503 because the limit was reached and none was idle.", nil, nil)
	maxPeerDesc = prometheus.NewDesc("lbd_http_max_peer_connections",
		"Maximum number of API connections of one peer (--max-peer-connections).", nil, nil)
	peerEvictedDesc = prometheus.NewDesc("lbd_http_peer_connections_evicted_total",
		"Idle API connections closed at the limit of their peer, to admit new ones of the same peer.", nil, nil)
	peerRefusedDesc = prometheus.NewDesc("lbd_http_peer_connections_refused_total",
		"New API connections rejected with 503 because the limit of their peer was reached and none of its connections was idle.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (l *Limiter) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(l, out) }

// Collect implements [prometheus.Collector].
func (l *Limiter) Collect(out chan<- prometheus.Metric) {
	idle, active := l.count()
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(idle), "idle")
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(active), "active")
	out <- prometheus.MustNewConstMetric(maxDesc, prometheus.GaugeValue, float64(l.options.Max))
	out <- prometheus.MustNewConstMetric(evictedDesc, prometheus.CounterValue, float64(l.evicted.Load()))
	out <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(l.refused.Load()))
	if l.options.MaxPeer > 0 {
		out <- prometheus.MustNewConstMetric(maxPeerDesc, prometheus.GaugeValue, float64(l.options.MaxPeer))
		out <- prometheus.MustNewConstMetric(peerEvictedDesc, prometheus.CounterValue, float64(l.peerEvicted.Load()))
		out <- prometheus.MustNewConstMetric(peerRefusedDesc, prometheus.CounterValue, float64(l.peerRefused.Load()))
	}
}

// count returns the number of connections.
func (l *Limiter) count() (idle, active int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.idle.Load() > 0 {
			idle++
		} else {
			active++
		}
	}
	return idle, active
}
