package eventloop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/overload"
)

// Server serves connections on event loops.
type Server struct {
	options Options
	start   time.Time
	loops   []*loop
	writers writers
	running sync.WaitGroup
}

// serving is a listener that the loops serve.
type serving struct {
	*listener

	context context.Context // of its requests
	queue   *queue
	failed  chan error // an error of accept
	unix    bool
}

// New starts the loops. The Server must be closed.
func New(o Options) (*Server, error) {
	s := &Server{options: o, start: time.Now()}
	s.writers = writers{running: &s.running, logger: o.Logger, max: max(1, overload.CPUs()-1)} // a CPU remains for picks
	for range max(1, o.Loops) {
		l, err := newLoop(s)
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.loops = append(s.loops, l)
		s.running.Go(l.run)
	}
	return s, nil
}

// Serve serves a listener that [Take] returned, until it is closed. Its connections stay open.
func (s *Server) Serve(l *listen.Listener) error {
	own, ok := l.Listener.(*listener)
	if !ok {
		return fmt.Errorf("%T: %w", l.Listener, errors.ErrUnsupported)
	}
	handedOver := *l
	q := &queue{addr: own.addr, limiter: s.options.Limiter}
	q.cond.L, handedOver.Listener = &q.mu, q
	ln := &serving{listener: own, context: listen.BaseContext(&handedOver), queue: q, failed: make(chan error, 1), unix: l.IsUnix()}
	go func() { _ = s.options.HandOver(&handedOver) }() // ends when the http.Server is closed
	var left sync.WaitGroup
	for _, loop := range s.loops {
		loop.post(func() { loop.listen(ln) })
	}
	var err error
	select {
	case <-own.closed:
		err = net.ErrClosed
	case err = <-ln.failed:
	}
	for _, loop := range s.loops {
		left.Add(1)
		loop.post(func() {
			delete(loop.sockets, ln.fd)
			loop.pause(ln)
			left.Done()
		})
	}
	left.Wait()
	_ = unix.Close(own.fd)
	return err
}

// Close ends the loops, and closes their connections. The listeners must be closed.
func (s *Server) Close() error {
	for _, l := range s.loops {
		l.post(l.stop)
	}
	s.running.Wait()
	for _, l := range s.loops {
		l.takeInbox() // connections that were admitted meanwhile
		l.release()
	}
	return nil
}
