package lrs

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// ServerStatus is how reports to one server go.
type ServerStatus struct {
	URI string
	// Connected tells that the server has answered on the stream, and takes
	// reports. Since is since when that is so, or is not.
	Connected bool
	Since     time.Time
	// Err is why the last stream ended, at ErrAt; nil where none has.
	Err   error
	ErrAt time.Time
	// Interval is how often the server wants a report, and Asked the clusters that
	// it wants to hear of, in order, none for all; as it said last.
	Interval time.Duration
	Asked    []string
	// LastReport is when the last report was sent; zero where none was.
	LastReport time.Time
	// Clusters is how many are reported, those included whose last load is.
	Clusters int
}

// Status returns how reports go, for each server in order of the URIs.
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

// connected notes what the server asks for.
func (s *server) connected(interval time.Duration, a asked) {
	s.reporter.mu.Lock()
	s.status.Interval, s.status.Asked = interval, slices.Sorted(maps.Keys(a))
	before := s.status.Connected
	if !before {
		s.status.Connected, s.status.Since = true, time.Now()
	}
	s.reporter.mu.Unlock()
	if !before {
		s.reporter.options.Logger.Info("a management server takes load reports", "server", s.URI, "interval", interval)
	}
}

// disconnected notes why a stream has ended; nil for one that was to end.
func (s *server) disconnected(err error) {
	s.reporter.mu.Lock()
	now := time.Now()
	if s.status.Connected {
		s.status.Connected, s.status.Since = false, now
	}
	news := err != nil && (s.status.Err == nil || s.status.Err.Error() != err.Error())
	if err != nil {
		s.status.Err, s.status.ErrAt = err, now
	}
	s.reporter.mu.Unlock()
	if news && s.reporter.ctx.Err() == nil {
		s.reporter.options.Logger.Warn("a management server takes no load reports", "server", s.URI, "error", err)
	}
}
