package service

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Limits of clusters on demand.
const (
	// DefaultOnDemand is how many clusters are asked of a management server at a
	// time because picks named them.
	DefaultOnDemand = 1000
	// DefaultOnDemandIdle is how long such a cluster stays that nobody picks
	// from.
	DefaultOnDemandIdle = 10 * time.Minute
	// UnknownIdle is how long the name of a cluster that nobody knows stays
	// after its last pick, and takes a place: longer than a management server
	// has to tell of it.
	UnknownIdle = 30 * time.Second
)

// onDemand are the clusters that are hosted because picks named them.
type onDemand struct {
	// Fixed after build.
	max  int
	idle time.Duration

	mu       sync.Mutex           // held before the service's resolving
	clusters map[string]time.Time // when a sweep saw them used last
	closed   bool

	stop  context.CancelFunc // of the sweeps
	quiet sync.WaitGroup
}

// demand returns the target of a cluster, once the management server is asked
// for it: its picks wait for the answer.
func (s *Service) demand(cluster string) (*target, error) {
	d := &s.onDemand
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := s.targets.current.Load().clusters[cluster]; t != nil { // by another pick meanwhile
		t.used.Store(true)
		return t, nil
	}
	if d.closed {
		return nil, s.closed(cluster, "")
	}
	if len(d.clusters) >= d.max {
		e := errorf(RateLimited, "cluster %q is not known, and the management server is asked for %d clusters on demand already, of at most %d", cluster, len(d.clusters), d.max)
		e.Cluster, e.RetryAfter = cluster, UnknownIdle
		return nil, e
	}
	d.clusters[cluster] = time.Now()
	s.resolving.Lock()
	defer s.resolving.Unlock()
	s.follow(s.resolver.Demand(cluster)) // of which no target ends
	return s.targets.current.Load().clusters[cluster], nil
}

// stopDemand ends the sweeps. No cluster is demanded after it.
func (s *Service) stopDemand() {
	d := &s.onDemand
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	if d.stop != nil {
		d.stop()
		d.quiet.Wait()
	}
}

// sweepDemanded releases clusters that nobody uses, and forgets what was kept of
// those that nobody has named since, until ctx ends.
func (s *Service) sweepDemanded(ctx context.Context) {
	ticker := time.NewTicker(min(UnknownIdle, s.onDemand.idle) / 3)
	defer ticker.Stop()
	forget := time.NewTicker(s.onDemand.idle)
	defer forget.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			s.sweep(now)
		case <-forget.C:
			s.forgetSpare()
		}
	}
}

func (s *Service) sweep(now time.Time) {
	d := &s.onDemand
	d.mu.Lock()
	var idle []string
	for cluster, used := range d.clusters {
		t := s.targets.current.Load().clusters[cluster]
		if t != nil && t.used.Swap(false) {
			d.clusters[cluster] = now
			continue
		}
		stays := d.idle
		if t != nil && !t.newest.Load().only.known() {
			stays = min(stays, UnknownIdle)
		}
		if now.Sub(used) >= stays {
			idle = append(idle, cluster)
			delete(d.clusters, cluster)
		}
	}
	s.resolving.Lock()
	var changes []resolver.Change
	for _, cluster := range idle {
		changes = append(changes, s.resolver.Release(cluster)...)
	}
	gone := s.follow(changes)
	s.resolving.Unlock()
	d.mu.Unlock()
	gone.close()
}

// known reports whether anybody knows the cluster. One that picks named and that
// the management server has not told of is not, and is shown nowhere.
func (m *member) known() bool {
	cc := m.clusterConfig()
	switch {
	case m.target.label != "":
		return true // a route names it
	case cc.Cluster != nil: // with an error it is an aggregate that is not whole
		return !cc.Pending || cc.ClusterFrom.Source != resource.SourceDefault
	case cc.ClusterFrom.Source == resource.SourcePush || cc.ClusterFrom.Source == resource.SourceFile:
		return true
	default:
		_, refused := errors.AsType[*client.RejectedError](cc.Err)
		return refused
	}
}
