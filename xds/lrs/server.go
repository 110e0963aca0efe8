package lrs

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/lbd-dev/lbd/xds/bootstrap"
)

// server is a server with clusters. Its goroutine keeps a stream open until there are none.
type server struct {
	bootstrap.Server

	key      string
	reporter *Reporter
	woken    chan struct{} // capacity 1: clusters were stopped or moved
	quit     chan struct{} // closed when the Reporter closes

	status ServerStatus // guarded by reporter.mu
}

func newServer(r *Reporter, s bootstrap.Server) *server {
	return &server{
		Server: s, key: s.Key(), reporter: r, woken: make(chan struct{}, 1), quit: make(chan struct{}),
		status: ServerStatus{URI: s.URI, Since: time.Now()},
	}
}

// wake makes the goroutine check its clusters.
func (s *server) wake() {
	select {
	case s.woken <- struct{}{}:
	default:
	}
}

func (s *server) run() {
	var conn *grpc.ClientConn
	defer func() {
		if conn != nil {
			_ = conn.Close() // no stream is left on it
		}
	}()
	for retries := 0; !s.reporter.retire(s); {
		begun := time.Now()
		var answered bool
		var err error
		if conn == nil {
			conn, err = s.reporter.options.Dial(s.Server)
		}
		if err == nil {
			answered, err = s.serve(conn)
		}
		s.disconnected(err)
		var wait time.Duration
		if answered { // at most one stream per second
			retries = 0
			wait = s.reporter.options.Backoff(0) - time.Since(begun)
		} else {
			wait = s.reporter.options.Backoff(retries)
			retries++
		}
		if !s.pause(wait) {
			return
		}
	}
}

func (s *server) serve(conn *grpc.ClientConn) (answered bool, err error) {
	ctx, cancel := context.WithCancel(s.reporter.ctx)
	defer cancel()
	st, err := s.open(ctx, conn)
	if err != nil {
		return false, err
	}
	defer func() {
		cancel()
		<-st.done
	}()
	err = st.report()
	return st.answered, err
}

func (s *server) hasCluster(is func(cluster) bool) bool {
	s.reporter.mu.Lock()
	defer s.reporter.mu.Unlock()
	return s.reporter.has(s, is)
}

func anyCluster(cluster) bool { return true }

func (s *server) idle() bool { return !s.hasCluster(anyCluster) }

func (s *server) hasActive() bool {
	return s.hasCluster(func(c cluster) bool { return c.stopped == 0 })
}

func (s *server) hasLoad() bool {
	return s.hasCluster(func(c cluster) bool { return !c.busy && !c.counters.Read().Empty() })
}

// pause waits while the server has clusters. It reports false when the Reporter closes.
func (s *server) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !s.idle() {
		select {
		case <-timer.C:
			return true
		case <-s.woken:
		case <-s.quit:
			return false
		}
	}
	return true
}
