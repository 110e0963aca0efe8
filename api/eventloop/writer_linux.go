package eventloop

import (
	"bytes"
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// streamEvents are those of a connection with a stream, and blockedEvents those of one whose caller has
// to read first. They occur once for each change, since what the caller sends is not read meanwhile.
const (
	streamEvents  = unix.EPOLLIN | unix.EPOLLET
	blockedEvents = streamEvents | unix.EPOLLOUT
)

// streaming is a connection whose response is a stream.
type streaming struct {
	// Fixed after begin.
	loop   *loop
	conn   *conn
	stream Stream

	left atomic.Bool // the caller has ended its side
	gone atomic.Bool // the loop has closed the connection

	// The following belongs to the goroutine that writes.

	unsent  []byte // what is to be sent before the stream
	blocked bool   // the limiter knows that the caller has to read first

	turn turn // guarded by mu of writers
}

// turn is where a stream is in the queue of writers.
type turn int

const (
	resting turn = iota
	queued
	writing
	writingAgain // and was woken meanwhile
	over
)

// writers continue streams, in a few goroutines, which end when there is nothing to send. So a stream
// whose messages are long, or take long to compose, does not delay picks.
type writers struct {
	running *sync.WaitGroup
	logger  *slog.Logger
	max     int

	mu      sync.Mutex // guards the following
	queue   []*streaming
	writing int // goroutines
}

// wake continues a stream, soon.
func (w *writers) wake(s *streaming) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s.turn {
	case resting:
		w.enqueue(s)
	case writing:
		s.turn = writingAgain
	case queued, writingAgain, over:
	}
}

// enqueue is called under mu.
func (w *writers) enqueue(s *streaming) {
	s.turn = queued
	w.queue = append(w.queue, s)
	if w.writing < w.max {
		w.writing++
		w.running.Go(w.run)
	}
}

func (w *writers) run() {
	for s := w.next(); s != nil; s = w.next() {
		switch state := w.write(s); state {
		case StreamComplete, StreamBroken:
			w.end(s, state == StreamComplete)
		default:
			if state == StreamBlocked {
				s.loop.post(func() { s.loop.awaitReader(s) })
			}
			w.leave(s, state == StreamYields)
		}
	}
}

// next returns the stream whose turn it is; nil ends the goroutine.
func (w *writers) next() *streaming {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		w.queue = nil
		w.writing--
		return nil
	}
	s := w.queue[0]
	w.queue[0] = nil
	w.queue = w.queue[1:]
	s.turn = writing
	return s
}

// leave ends the turn of a stream; more asks for another one.
func (w *writers) leave(s *streaming, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if more || s.turn == writingAgain {
		w.enqueue(s)
	} else {
		s.turn = resting
	}
}

// write continues a stream.
func (w *writers) write(s *streaming) (state StreamState) {
	defer func() {
		if v := recover(); v != nil {
			w.panicked(v)
			state = StreamBroken
		}
	}()
	if s.gone.Load() {
		return StreamBroken
	}
	return s.stream.Continue(s)
}

// end ends a stream. If it is complete, its connection may have other requests.
func (w *writers) end(s *streaming, complete bool) {
	defer func() {
		if v := recover(); v != nil {
			w.panicked(v)
		}
	}()
	w.mu.Lock()
	s.turn = over
	w.mu.Unlock()
	s.loop.post(func() { s.loop.streamed(s, complete) })
	s.stream.End()
}

func (w *writers) panicked(v any) {
	w.logger.LogAttrs(context.Background(), slog.LevelError, "stream panicked",
		slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
}

// Left implements [Sender].
func (s *streaming) Left() bool { return s.left.Load() }

// Send implements [Sender].
func (s *streaming) Send(b []byte) (n int, err error) {
	if len(s.unsent) > 0 {
		n, err := s.send(s.unsent)
		if s.unsent = s.unsent[n:]; err != nil || len(s.unsent) > 0 {
			return 0, err
		}
		s.unsent = nil
	}
	return s.send(b)
}

func (s *streaming) send(b []byte) (n int, err error) {
	if n, err = s.conn.send(b); err != nil {
		return n, err
	}
	switch {
	case n == len(b):
		if s.blocked {
			s.blocked = false
			s.conn.admitted.Active()
		}
	case n > 0 || !s.blocked:
		s.blocked = true
		s.conn.admitted.Blocked(time.Now())
	}
	return n, nil
}

// stream starts the stream that answers the last request of a connection. b is what was received after
// the request.
func (l *loop) stream(c *conn, b []byte) {
	s := &streaming{loop: l, conn: c, stream: l.worker.response.stream, turn: writing} // not before the head is sent
	l.worker.response.stream = nil
	c.stream, c.received = s, nil
	if len(b) > 0 {
		l.keep(c, b)
	}
	c.peer.rest()
	c.peer.fields = nil
	c.admitted.Active()
	s.stream.Start(func() { l.server.writers.wake(s) })
	if rest, ok := l.send(c, l.worker.takeResponses()); ok {
		s.unsent = bytes.Clone(rest)
		l.await(c, streamEvents)
	}
	l.server.writers.leave(s, true)
}

// handleStream handles an event of a connection with a stream. Requests that the caller sends meanwhile
// are not read.
func (l *loop) handleStream(c *conn, events uint32) {
	if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
		l.close(c)
		return
	}
	if events&unix.EPOLLIN != 0 && ended(c.socket) {
		c.stream.left.Store(true)
		l.server.writers.wake(c.stream)
	}
	if events&unix.EPOLLOUT != 0 {
		l.server.writers.wake(c.stream)
		l.await(c, streamEvents)
	}
}

// awaitReader waits until the caller of a stream reads.
func (l *loop) awaitReader(s *streaming) {
	if s.conn.stream == s {
		l.await(s.conn, blockedEvents)
	}
}

// streamed serves a connection after its stream. If that is not complete, it closes the connection.
func (l *loop) streamed(s *streaming, complete bool) {
	c := s.conn
	if c.stream != s {
		return // it was closed
	}
	c.stream = nil
	defer l.recovered(c)
	if !complete || c.ending {
		l.close(c)
		return
	}
	c.deadline = l.at(l.server.options.IdleTimeout)
	c.admitted.Idle(l.now)
	l.proceed(c)
}
