// Package connections limits how many connections the API's callers have open, so that
// they do not take the descriptors that lbd needs for itself. It makes room for a new
// connection by closing the one that has been idle longest.
package connections

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// AdmitWait is how long a new connection waits for room when none is idle. One that
	// comes while the last had to be refused does not wait.
	AdmitWait = time.Second
	// evictWait is how long an idle connection has to end until another is chosen: a
	// request may have come on it in the same moment.
	evictWait = 20 * time.Millisecond
	// acceptPause is how long nothing is accepted after a shortage of the system.
	acceptPause = 50 * time.Millisecond
	// bodyPatience is how long nothing of a request's body may have come until its
	// connection counts as idle where room is needed.
	bodyPatience = time.Second
	// maxCandidates is how many idle connections one look finds.
	maxCandidates = 256
)

// Options are what a Limiter needs from around it.
type Options struct {
	// Max is how many connections there may be.
	Max int
	// Full is called for each connection that is refused because no other one is idle.
	Full func()
	// Lacking reports whether a connection could not be accepted for a shortage of the
	// system, so that it is to be tried again.
	Lacking func(error) bool
}

// Limiter knows the connections of all listeners. Its methods may be called from any
// goroutine.
type Limiter struct {
	options Options
	start   time.Time

	evicted, refused atomic.Uint64
	waiting          atomic.Int64 // new connections that wait for room
	full             atomic.Bool  // the last one had to be refused

	mu         sync.Mutex // guards the rest
	open       map[*conn]struct{}
	freed      chan struct{} // closed when there may be room; nil while no connection waits
	candidates []candidate   // idle ones, the longest first, as of the last look
	refusing   int
}

// candidate is a connection whose idle was this.
type candidate struct {
	conn *conn
	idle int64
}

// since is since when nothing has come on the connection.
func (c candidate) since() int64 { return max(c.idle, -c.idle) }

// New returns a Limiter without connections.
func New(o Options) *Limiter {
	return &Limiter{options: o, start: time.Now(), open: make(map[*conn]struct{})}
}

// conn is one connection.
type conn struct {
	net.Conn

	limiter *Limiter
	// idle is since when, as limiter.now; 0 while a request is under way. It is negative
	// while the request's body is awaited.
	idle    atomic.Int64
	retired atomic.Bool
	closed  sync.Once
}

// now is never 0.
func (l *Limiter) now() int64 { return int64(time.Since(l.start)) + 1 }

// Attach lets l follow the connections of a server, which must have its Handler and
// serve listeners of [Limiter.Listen]. It sets ConnState and ConnContext.
func (l *Limiter) Attach(s *http.Server) {
	s.ConnState = l.stateChanged
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	next := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A connection of HTTP/2 has other requests beside the one whose body is awaited.
		if own, ok := r.Context().Value(connKey{}).(*conn); ok && r.ProtoMajor == 1 && r.Body != http.NoBody {
			r.Body = &body{r.Body, own}
		}
		next.ServeHTTP(w, r)
	})
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

// body is the body of a request.
type body struct {
	io.ReadCloser

	conn *conn
}

// Read reads. Meanwhile the connection waits for its caller.
func (b *body) Read(p []byte) (int, error) {
	b.conn.idle.Store(-b.conn.limiter.now())
	defer b.conn.idle.Store(0)
	return b.ReadCloser.Read(p)
}

// stateChanged follows which connections are idle.
func (l *Limiter) stateChanged(c net.Conn, s http.ConnState) {
	own, ok := c.(*conn)
	if !ok {
		return
	}
	switch s {
	case http.StateActive:
		own.idle.Store(0)
	case http.StateIdle:
		own.idle.Store(l.now())
		if l.waiting.Load() > 0 && !own.retired.Load() { // one that is retired closes now
			l.wake()
		}
	default:
	}
}

// wake lets those look again who wait for room.
func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
}

// Close closes the connection.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() {
		c.limiter.mu.Lock()
		delete(c.limiter.open, c)
		c.limiter.mu.Unlock()
		c.limiter.wake()
	})
	return err
}

// CloseWrite ends what is sent, as the HTTP server does before it closes.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// retire ends the connection gently: a request that was received already is answered,
// and the server closes the connection when it finds no other.
func (c *conn) retire() {
	if c.retired.Swap(true) {
		return
	}
	if half, ok := c.Conn.(interface{ CloseRead() error }); ok && half.CloseRead() == nil {
		return
	}
	_ = c.Conn.SetReadDeadline(time.Now())
}

// admit counts c once there is room, and reports false where there is none in time.
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
		timer := time.NewTimer(left)
		select {
		case <-freed:
			timer.Stop()
		case <-timer.C:
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

// enter counts c if there is room; else freed is closed when there may be.
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

// evict retires the connection that has been idle longest, and reports whether there
// was one.
func (l *Limiter) evict() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for looked := false; ; looked = true {
		for len(l.candidates) > 0 {
			next := l.candidates[0]
			l.candidates = l.candidates[1:]
			if _, open := l.open[next.conn]; open && next.conn.idle.Load() == next.idle && !next.conn.retired.Load() {
				next.conn.retire()
				l.evicted.Add(1)
				return true
			}
		}
		if looked {
			return false
		}
		l.look()
	}
}

// look finds the connections that have been idle longest.
func (l *Limiter) look() {
	l.candidates = l.candidates[:0]
	silent := -l.now() + int64(bodyPatience)
	for c := range l.open {
		if idle := c.idle.Load(); (idle > 0 || idle < 0 && idle >= silent) && !c.retired.Load() {
			l.candidates = append(l.candidates, candidate{c, idle})
		}
	}
	slices.SortFunc(l.candidates, func(a, b candidate) int { return cmp.Compare(a.since(), b.since()) })
	l.candidates = slices.Clone(l.candidates[:min(len(l.candidates), maxCandidates)])
}

// Drain retires every connection once it has been idle for quiet, and returns when there
// is none left, or ctx ends. Nothing may be accepted any more.
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

// retireIdle returns how many connections there are.
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
