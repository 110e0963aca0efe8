package eventloop

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/api/connections"
	"github.com/lbd-dev/lbd/api/listen"
)

const (
	// maxAccepts is the maximum number of connections that are accepted before others are served.
	maxAccepts = 16
	// flushBytes is the size of responses after which they are sent, although more requests of the
	// same caller have been received.
	flushBytes = 16 << 10
	// turnRequests and turnBytes are the numbers of requests, and of bytes of their responses, after
	// which other connections are served, although more requests of the same caller have been
	// received.
	turnRequests = 32
	turnBytes    = 64 << 10
	// minRequest is the number of bytes after a response that net/http takes for a request. At the end
	// of a connection, it ignores fewer.
	minRequest = 4
	// tick is the time between two searches for connections whose time is over. Each search looks at
	// one of tickParts parts of the connections.
	tick      = 250 * time.Millisecond
	tickParts = 4
	// unevenness is the number of connections that a loop may have more than another one.
	unevenness = 8
)

// loop serves connections in one goroutine.
type loop struct {
	server  *Server
	epoll   *poller
	waker   int // an eventfd
	worker  *worker
	input   [maxHead]byte
	conns   []*conn // by descriptor
	waiting []*conn // that have received requests for another turn
	sockets map[int]*serving
	now     time.Time
	checked time.Time // when the last search began
	next    int       // the first descriptor of the next search
	stopped bool
	count   atomic.Int64 // connections

	mu    sync.Mutex
	inbox []func()
}

func newLoop(s *Server) (*loop, error) {
	l := &loop{server: s, waker: -1, worker: newWorker(s.options.Routes), sockets: make(map[int]*serving), now: time.Now()}
	var err error
	if l.epoll, err = newPoller(); err != nil {
		return nil, err
	}
	if l.waker, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err == nil {
		err = l.epoll.watch(unix.EPOLL_CTL_ADD, l.waker, unix.EPOLLIN)
	}
	if err != nil {
		l.release()
		return nil, fmt.Errorf("start an event loop: %w", err)
	}
	return l, nil
}

func (l *loop) release() {
	if l.waker >= 0 {
		_ = unix.Close(l.waker)
	}
	l.epoll.close()
}

// post calls f in the goroutine of the loop, soon.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.inbox = append(l.inbox, f)
	l.mu.Unlock()
	one := [8]byte{7: 1}
	_, _ = unix.Write(l.waker, one[:]) // EAGAIN: it is awake
}

// takeInbox calls the functions that were posted.
func (l *loop) takeInbox() {
	var counter [8]byte
	_, _ = unix.Read(l.waker, counter[:])
	l.mu.Lock()
	inbox := l.inbox
	l.inbox = nil
	l.mu.Unlock()
	for _, f := range inbox {
		f()
	}
}

// run serves until stop.
func (l *loop) run() {
	var n int
	var err error
	for !l.stopped {
		timeout := -1
		if l.count.Load() > 0 {
			timeout = int(tick / time.Millisecond)
		}
		if len(l.waiting) > 0 {
			timeout = 0
		}
		if n, err = l.epoll.wait(n > 1, timeout); err != nil && !errors.Is(err, unix.EINTR) {
			panic(os.NewSyscallError("epoll_wait", err)) // the descriptor is invalid
		}
		l.now = time.Now()
		for i := range n {
			l.handle(&l.epoll.events[i])
		}
		l.takeTurns()
		if l.now.Sub(l.checked) >= tick {
			l.checked = l.now
			l.expire()
		}
	}
}

func (l *loop) handle(e *unix.EpollEvent) {
	fd := int(e.Fd)
	switch {
	case fd == l.waker:
		l.takeInbox()
	case fd < len(l.conns) && l.conns[fd] != nil:
		c := l.conns[fd]
		defer l.recovered(c)
		switch {
		case c.stream != nil:
			l.handleStream(c, e.Events)
		case c.unsent != nil:
			l.resume(c)
		case !c.waits:
			l.receive(c)
		}
	case l.sockets[fd] != nil:
		l.accept(l.sockets[fd])
	}
}

// takeTurns serves the connections that wait for another turn.
func (l *loop) takeTurns() {
	turn := l.waiting
	l.waiting = nil
	for _, c := range turn {
		if c.waits = false; c.socket >= 0 {
			l.serveReceived(c)
		}
	}
}

// serveReceived serves what was received before.
func (l *loop) serveReceived(c *conn) {
	defer l.recovered(c)
	n := copy(l.input[:], c.received)
	c.received, c.peer.scanned = nil, 0
	l.serve(c, l.input[:n])
}

// recovered closes a connection whose event ended in a panic.
func (l *loop) recovered(c *conn) {
	if v := recover(); v != nil {
		l.server.options.Logger.LogAttrs(context.Background(), slog.LevelError, "event loop panicked",
			slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		l.close(c)
	}
}

// listen adds a listener.
func (l *loop) listen(ln *serving) {
	l.sockets[ln.fd] = ln
	l.resumeListening(ln)
}

func (l *loop) resumeListening(ln *serving) {
	if l.sockets[ln.fd] != ln {
		return
	}
	if err := l.epoll.watch(unix.EPOLL_CTL_ADD, ln.fd, unix.EPOLLIN|unix.EPOLLEXCLUSIVE); err != nil {
		l.retry(ln, os.NewSyscallError("epoll_ctl", err))
	}
}

// pause stops accepting connections until resumeListening.
func (l *loop) pause(ln *serving) { _ = l.epoll.watch(unix.EPOLL_CTL_DEL, ln.fd, 0) }

// retry accepts connections again after a while, unless the listener is the cause of the error, which
// then ends Serve.
func (l *loop) retry(ln *serving, err error) {
	l.later(ln, func() connections.Conn {
		if !l.server.options.Limiter.Recover(err) {
			l.fail(ln, err)
		}
		return nil
	}, nil)
}

// fail ends Serve.
func (l *loop) fail(ln *serving, err error) {
	select {
	case ln.failed <- err:
	default:
	}
}

func (l *loop) accept(ln *serving) {
	for range maxAccepts {
		fd, address, err := unix.Accept4(ln.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
		case errors.Is(err, unix.EAGAIN), isShortage(err) && !ln.waits():
			return
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		default:
			l.retry(ln, os.NewSyscallError("accept", err))
			return
		}
		c := &conn{listener: ln, fd: fd, socket: fd}
		zoned := c.identify(ln, address)
		admitted, wait := l.server.options.Limiter.Admit(c)
		switch {
		case admitted != nil:
			c.admitted = admitted
			l.place(c, zoned)
		case wait != nil:
			l.later(ln, wait, func(a connections.Conn) {
				c.admitted = a
				l.place(c, zoned)
			})
			return
		}
	}
}

// isShortage reports whether an error of accept means that no descriptor is free. Linux takes one before it
// looks for a connection: without one, accept fails also if another loop has taken the connection.
func isShortage(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

// waits reports whether a connection waits to be accepted. If a signal interrupts the poll, epoll reports it again.
func (ln *serving) waits() bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(ln.fd), Events: unix.POLLIN}}, 0)
	return n > 0
}

// later stops accepting connections until wait returns. then gets its result, unless it is nil.
func (l *loop) later(ln *serving, wait func() connections.Conn, then func(connections.Conn)) {
	l.pause(ln)
	l.server.running.Go(func() {
		a := wait()
		l.post(func() {
			l.resumeListening(ln)
			if a != nil {
				then(a)
			}
		})
	})
}

// identify sets the peer of a connection. It reports true for an address with a zone, whose name net
// knows.
func (c *conn) identify(ln *serving, address unix.Sockaddr) (zoned bool) {
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		c.remote = &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
	case *unix.SockaddrInet6:
		c.remote = &net.TCPAddr{IP: a.Addr[:], Port: a.Port}
		return a.ZoneId != 0
	case *unix.SockaddrUnix:
		c.remote = &net.UnixAddr{Name: a.Name, Net: "unix"}
	default:
		c.remote = &net.UnixAddr{Net: "unix"}
	}
	if ln.unix {
		if cred, err := unix.GetsockoptUcred(c.fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			c.cred = cred
		}
	}
	return false
}

// place gives an admitted connection to a loop.
func (l *loop) place(c *conn, zoned bool) {
	if zoned || l.stopped {
		c.listener.queue.push(c)
		return
	}
	// The loop with the fewest connections.
	other := slices.MinFunc(l.server.loops, func(a, b *loop) int { return cmp.Compare(a.count.Load(), b.count.Load()) })
	if other.count.Load()+unevenness < l.count.Load() {
		other.post(func() { other.begin(c) })
		return
	}
	l.begin(c)
}

// begin serves a new connection. Its first request has often been received already.
func (l *loop) begin(c *conn) {
	if l.stopped {
		_ = c.admitted.Close()
		return
	}
	c.peer = newPeer(l.worker.context(listen.ConnContext(c.listener.context, c)), c.remote.String())
	c.deadline = l.at(l.server.options.ReadTimeout)
	for len(l.conns) <= c.socket {
		l.conns = append(l.conns, nil)
	}
	l.conns[c.socket] = c
	l.count.Add(1)
	defer l.recovered(c)
	l.receive(c)
	if c.socket >= 0 && !c.watched {
		l.await(c, unix.EPOLLIN)
	}
}

// at returns the deadline after a time.
func (l *loop) at(after time.Duration) time.Duration { return l.now.Sub(l.server.start) + after }

// await sets the event that the connection waits for.
func (l *loop) await(c *conn, event uint32) {
	op := unix.EPOLL_CTL_MOD
	if !c.watched {
		op, c.watched = unix.EPOLL_CTL_ADD, true
	}
	if err := l.epoll.watch(op, c.socket, event); err != nil { // out of memory or watches
		l.server.options.Limiter.Report(err)
		l.close(c)
	}
}

// receive serves what the caller has sent.
func (l *loop) receive(c *conn) {
	kept := copy(l.input[:], c.received)
	n, errno := receive(c.socket, l.input[kept:], 0)
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
	case errno != 0:
		l.close(c)
	case n == 0 && (kept == 0 || c.served && kept < minRequest):
		l.close(c)
	case n == 0:
		l.handOver(c, c.received) // it decides what half a request means
	default:
		l.serve(c, l.input[:kept+n])
	}
}

// serve serves the requests in b, until it is the turn of other connections.
func (l *loop) serve(c *conn, b []byte) {
	w := l.worker
	w.response.out = w.response.out[:0]
	requests, size := 0, 0
	for first := c.received == nil; len(b) > 0; first = true {
		if requests == turnRequests || size >= turnBytes {
			if l.keep(c, b); l.flush(c) {
				c.admitted.Idle(l.now)
				c.waits = true
				l.waiting = append(l.waiting, c)
			}
			return
		}
		before := len(w.response.out)
		used, v := 0, incomplete
		if !c.served || len(b) >= minRequest {
			used, v = w.serve(&c.peer, b, l.now)
		}
		b = b[used:]
		requests++
		size += len(w.response.out) - before
		switch v {
		case served:
			c.served = true
			if len(w.response.out) < flushBytes || l.flush(c) {
				continue
			}
		case streamed:
			c.served, c.ending = true, w.response.closes
			l.stream(c, b)
			return
		case last, aborted:
			if c.ending = true; l.flush(c) {
				l.close(c)
			}
			return
		case foreign:
			if l.flush(c) {
				l.handOver(c, b)
				return
			}
		case incomplete:
			if first { // else the time runs since a part of the request was received
				c.deadline = l.at(l.server.options.ReadTimeout)
			}
			l.keep(c, b)
			switch sent := l.flush(c); {
			case !sent:
			case hasHead(b): // the rest of the body is missing
				c.admitted.Receiving(l.now)
			case requests > 1: // others were answered
				c.admitted.Idle(l.now)
			}
			return
		}
		if c.socket >= 0 { // else it was closed
			l.keep(c, b)
		}
		return
	}
	c.received = nil
	if l.flush(c) {
		c.deadline = l.at(l.server.options.IdleTimeout)
		c.admitted.Idle(l.now)
		c.peer.rest()
	}
}

// hasHead reports whether b, the beginning of a request, has all of its header lines.
func hasHead(b []byte) bool { return bytes.Contains(b, []byte("\r\n\r\n")) }

// keep keeps what was received but not served.
func (l *loop) keep(c *conn, b []byte) { c.received = append(c.received[:0], b...) }

// flush sends the responses. It reports false if the caller has to read first, or the connection has
// been closed.
func (l *loop) flush(c *conn) bool {
	rest, ok := l.send(c, l.worker.takeResponses())
	if !ok || len(rest) == 0 {
		return ok
	}
	c.unsent = bytes.Clone(rest)
	c.deadline = l.at(l.server.options.WriteTimeout)
	c.admitted.Blocked(l.now)
	l.await(c, unix.EPOLLOUT)
	return false
}

// send sends as much as the caller reads. It closes the connection after an error.
func (l *loop) send(c *conn, b []byte) (rest []byte, ok bool) {
	for len(b) > 0 {
		n, errno := send(c.socket, b)
		switch {
		case errno == unix.EAGAIN:
			return b, true
		case errno == unix.EINTR:
		case errno != 0:
			l.close(c)
			return nil, false
		default:
			b = b[n:]
		}
	}
	return nil, true
}

// resume sends the rest of the responses, and then serves what was received before.
func (l *loop) resume(c *conn) {
	before := len(c.unsent)
	rest, ok := l.send(c, c.unsent)
	if !ok {
		return
	}
	if len(rest) > 0 {
		if len(rest) < before {
			c.admitted.Blocked(l.now)
		}
		c.unsent = rest
		return
	}
	c.unsent = nil
	if c.ending {
		l.close(c)
		return
	}
	c.deadline = l.at(l.server.options.IdleTimeout)
	c.admitted.Idle(l.now)
	l.proceed(c)
}

// proceed serves what was received during the last response, and then waits for more.
func (l *loop) proceed(c *conn) {
	if len(c.received) > 0 {
		l.serveReceived(c)
	} else {
		c.received = nil
	}
	if c.socket >= 0 && c.unsent == nil && c.stream == nil {
		l.await(c, unix.EPOLLIN)
	}
}

// handOver gives the connection to net/http, with what was received.
func (l *loop) handOver(c *conn, received []byte) {
	c.prefix = bytes.Clone(received)
	l.forget(c)
	c.listener.queue.push(c)
}

// close closes the connection.
func (l *loop) close(c *conn) {
	if c.socket >= 0 {
		c.watched = false // closing the descriptor removes it
		l.forget(c)
		_ = c.admitted.Close()
	}
	if s := c.stream; s != nil {
		c.stream = nil
		s.gone.Store(true)
		l.server.writers.wake(s)
	}
}

// forget removes the connection from the loop.
func (l *loop) forget(c *conn) {
	if c.watched {
		_ = l.epoll.watch(unix.EPOLL_CTL_DEL, c.socket, 0)
	}
	l.conns[c.socket] = nil
	l.count.Add(-1)
	c.socket, c.watched = -1, false
	c.received, c.unsent, c.peer = nil, nil, peer{}
}

// expire closes a part of the connections whose time is over.
func (l *loop) expire() {
	now := l.at(0)
	end := min(l.next+len(l.conns)/tickParts+1, len(l.conns))
	for _, c := range l.conns[l.next:end] {
		switch {
		case c == nil:
			continue
		case c.stream != nil:
			if c.stream.stream.Due(l.now) {
				l.server.writers.wake(c.stream)
			}
			continue
		case now < c.deadline:
			continue
		}
		if c.unsent == nil && hasHead(c.received) {
			l.handOver(c, c.received) // it waits for the body
		} else {
			l.close(c)
		}
	}
	if l.next = end; end == len(l.conns) {
		l.next = 0
	}
}

// stop closes all connections, and ends run.
func (l *loop) stop() {
	l.stopped = true
	for _, c := range l.conns {
		if c != nil {
			l.close(c)
		}
	}
}
