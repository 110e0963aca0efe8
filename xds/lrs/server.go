package lrs

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/wake"
)

// server is a server with clusters. Its goroutine keeps a stream open until there are none.
type server struct {
	bootstrap.Server

	reporter *Reporter
	wake     wake.One      // clusters were stopped or moved
	quit     chan struct{} // closed when the Reporter closes

	status ServerStatus // guarded by reporter.mu
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

// pause waits while the server has clusters. It reports false when the Reporter closes.
func (s *server) pause(d time.Duration) bool {
	over := time.After(d)
	for !s.idle() {
		select {
		case <-over:
			return true
		case <-s.wake:
		case <-s.quit:
			return false
		}
	}
	return true
}

// ServerStatus is the state of the reports to one server.
type ServerStatus struct {
	URI string
	// Connected is true if the server has responded on the stream. Since is the time of
	// its last change.
	Connected bool
	Since     time.Time
	// Err is the error of the last stream that failed, at ErrAt; nil if none has.
	Err   error
	ErrAt time.Time
	// Interval and Requested are of the last response: the interval of reports, and the
	// requested clusters by name, empty for all.
	Interval  time.Duration
	Requested []string
	// LastReport is the time of the last report; zero if there was none.
	LastReport time.Time
	// Clusters is the number of clusters, with stopped ones that have load left.
	Clusters int
}

// Status returns the state of each server, by URI.
func (r *Reporter) Status() []ServerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	clusters := make(map[*server]int)
	for _, c := range r.clusters {
		clusters[c.server]++
	}
	out := make([]ServerStatus, 0, len(r.servers))
	for _, key := range slices.Sorted(maps.Keys(r.servers)) {
		s := r.servers[key]
		s.status.Clusters = clusters[s]
		out = append(out, s.status)
	}
	slices.SortStableFunc(out, func(a, b ServerStatus) int { return cmp.Compare(a.URI, b.URI) })
	return out
}

func (s *server) updateStatus(change func(*ServerStatus)) {
	s.reporter.mu.Lock()
	defer s.reporter.mu.Unlock()
	change(&s.status)
}

func (s *server) connected(interval time.Duration, requested requestedClusters) {
	first := false
	s.updateStatus(func(is *ServerStatus) {
		is.Interval, is.Requested = interval, slices.Sorted(maps.Keys(requested))
		if first = !is.Connected; first {
			is.Connected, is.Since = true, time.Now()
		}
	})
	if first {
		s.reporter.options.Logger.Info("management server accepts load reports", "server", s.URI, "interval", interval)
	}
}

// disconnected records the end of a stream, with nil if lbd ended it.
func (s *server) disconnected(err error) {
	changed := false
	s.updateStatus(func(is *ServerStatus) {
		now := time.Now()
		if is.Connected {
			is.Connected, is.Since = false, now
		}
		if err != nil {
			changed = is.Err == nil || is.Err.Error() != err.Error()
			is.Err, is.ErrAt = err, now
		}
	})
	if changed && s.reporter.ctx.Err() == nil {
		s.reporter.options.Logger.Warn("cannot report load to the management server", "server", s.URI, "error", err)
	}
}
