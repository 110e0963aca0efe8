package lrs

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

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
	// Interval and Asked are of the last response: the interval of reports, and the
	// requested clusters by name, empty for all.
	Interval time.Duration
	Asked    []string
	// LastReport is the time of the last report; zero if there was none.
	LastReport time.Time
	// Clusters is the number of clusters, with stopped ones that have load left.
	Clusters int
}

// Status returns the state of each server, by URI.
func (r *Reporter) Status() []ServerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]ServerStatus, 0, len(r.servers))
	for _, key := range slices.Sorted(maps.Keys(r.servers)) {
		s := r.servers[key]
		status := s.status
		status.Clusters = len(s.clusters)
		out = append(out, status)
	}
	slices.SortStableFunc(out, func(a, b ServerStatus) int { return cmp.Compare(a.URI, b.URI) })
	return out
}

// connected records the request of the server.
func (s *server) connected(interval time.Duration, a requestedClusters) {
	s.reporter.mu.Lock()
	s.status.Interval, s.status.Asked = interval, slices.Sorted(maps.Keys(a))
	before := s.status.Connected
	if !before {
		s.status.Connected, s.status.Since = true, time.Now()
	}
	s.reporter.mu.Unlock()
	if !before {
		s.reporter.options.Logger.Info("management server accepts load reports", "server", s.URI, "interval", interval)
	}
}

// disconnected records the end of a stream, with nil if lbd ended it.
func (s *server) disconnected(err error) {
	s.reporter.mu.Lock()
	now := time.Now()
	if s.status.Connected {
		s.status.Connected, s.status.Since = false, now
	}
	changed := err != nil && (s.status.Err == nil || s.status.Err.Error() != err.Error())
	if err != nil {
		s.status.Err, s.status.ErrAt = err, now
	}
	s.reporter.mu.Unlock()
	if changed && s.reporter.ctx.Err() == nil {
		s.reporter.options.Logger.Warn("cannot report load to the management server", "server", s.URI, "error", err)
	}
}
