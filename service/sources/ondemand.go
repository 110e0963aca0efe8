package sources

import (
	queue "container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Limits of clusters on demand.
const (
	// DefaultOnDemand is how many known clusters are asked of a management server at
	// a time because picks named them.
	DefaultOnDemand = 1000
	// DefaultOnDemandUnknown is how many names are asked of it at a time that it has
	// not confirmed.
	DefaultOnDemandUnknown = 1000
	// DefaultOnDemandIdle is how long such a cluster stays that nobody picks
	// from.
	DefaultOnDemandIdle = 10 * time.Minute
	// UnknownIdle is how long the name of a cluster that nobody knows stays
	// after its last pick, and takes a place: longer than a management server
	// has to tell of it.
	UnknownIdle = 30 * time.Second
	// UnknownTenure is how long a name that nobody knows has a place at least. After
	// that the oldest gives way to a new one, when there is no other place: a
	// server that answers has answered.
	UnknownTenure = time.Second
)

// onDemand are the clusters that are hosted because picks named them. A cluster that
// a management server confirmed, or that is kept of one, has a place that no unknown
// name can take: any caller can invent names.
type onDemand struct {
	// Fixed after build.
	maxKnown, maxUnknown int
	idle                 time.Duration

	// Counts of picks' names; any goroutine.
	refusedKnown, refusedUnknown, evicted atomic.Uint64

	mu      sync.Mutex                // held before the service's resolving
	known   map[string]*demanded      // by cluster
	unknown map[string]*queue.Element // of *demanded, by cluster
	oldest  *queue.List               // the unknown ones, as they came
	closed  bool

	stop  context.CancelFunc // of the sweeps
	quiet sync.WaitGroup
}

// demanded is one cluster on demand.
type demanded struct {
	cluster string
	since   time.Time
	used    time.Time // when a sweep saw it used last
	// refused is true for one of the unknown that turned out to be known when there
	// was no place among these. It is not hosted; its picks are refused.
	refused bool
}

func (d *onDemand) init(o Options) {
	d.maxKnown, d.maxUnknown, d.idle = o.OnDemand, o.OnDemandUnknown, o.OnDemandIdle
	d.known, d.unknown, d.oldest = make(map[string]*demanded), make(map[string]*queue.Element), queue.New()
}

// Demand returns the target of a cluster, once the management server is asked
// for it: its picks wait for the answer. Without a management server it returns nil.
func (s *Sources) Demand(cluster string) (*ledger.Target, error) {
	if s.followed == nil {
		return nil, nil //nolint:nilnil // neither is there a target nor did anything fail
	}
	d := &s.onDemand
	d.mu.Lock()
	gone, t, err := s.demandLocked(cluster)
	d.mu.Unlock()
	gone.Close()
	return t, err
}

// demandLocked is demand under d.mu. What it returns first has to be closed after.
func (s *Sources) demandLocked(cluster string) (gone ledger.Ended, _ *ledger.Target, _ error) {
	d := &s.onDemand
	if t := s.targets.Hosted().Own(cluster); t != nil { // by another pick meanwhile
		t.MarkUsed()
		return gone, t, nil
	}
	if d.closed {
		return gone, nil, s.targets.Gone(cluster, "")
	}
	s.resolving.Lock()
	defer s.resolving.Unlock()
	c := &demanded{cluster: cluster, since: time.Now()}
	c.used = c.since
	if s.confirmed(cluster) {
		if len(d.known) >= d.maxKnown {
			d.refusedKnown.Add(1)
			return gone, nil, refusal(cluster, UnknownIdle, "%d clusters are asked for on demand already, of at most %d (--on-demand)", len(d.known), d.maxKnown)
		}
		d.removeUnknown(cluster)
		d.known[cluster] = c
		gone = s.follow(s.resolver.Demand(cluster))
		return gone, s.targets.Hosted().Own(cluster), nil
	}
	evicted, ok := d.makeRoom(c.since)
	if !ok {
		d.refusedUnknown.Add(1)
		return gone, nil, refusal(cluster, UnknownTenure, "it is not known, and %d names that nobody knows are asked for already, of at most %d (--on-demand-unknown)", len(d.unknown), d.maxUnknown)
	}
	d.addUnknown(c)
	changes := s.resolver.Release(evicted)
	gone = s.follow(append(changes, s.resolver.Demand(cluster)...))
	return gone, s.targets.Hosted().Own(cluster), nil
}

// confirmed reports whether a management server is known to have a cluster that is not
// hosted. It is called under d.mu and s.resolving.
func (s *Sources) confirmed(cluster string) bool {
	if e := s.onDemand.unknown[cluster]; e != nil && of(e).refused {
		return true
	}
	_, kept := s.resolver.Kept(resource.Key{Type: resource.TypeCluster, Name: cluster})
	return kept
}

// makeRoom makes a place for an unknown name. The oldest gives way if it had its time;
// its name is returned, empty where none had to.
func (d *onDemand) makeRoom(now time.Time) (evicted string, ok bool) {
	if len(d.unknown) < d.maxUnknown {
		return "", true
	}
	first := of(d.oldest.Front())
	if now.Sub(first.since) < UnknownTenure {
		return "", false
	}
	d.evicted.Add(1)
	d.removeUnknown(first.cluster)
	return first.cluster, true
}

// of returns an element of the list of unknown names.
func of(e *queue.Element) *demanded {
	return e.Value.(*demanded) //nolint:errcheck,forcetypeassert // the list holds nothing else
}

// refusal is the error of a pick whose name has no place. There may be one after a time.
func refusal(cluster string, after time.Duration, format string, args ...any) *fault.Error {
	e := fault.Errorf(fault.RateLimited, "cluster %q: "+format, append([]any{cluster}, args...)...)
	e.Cluster, e.RetryAfter = cluster, after
	return e
}

func (d *onDemand) addUnknown(c *demanded) { d.unknown[c.cluster] = d.oldest.PushBack(c) }

func (d *onDemand) removeUnknown(cluster string) {
	if e := d.unknown[cluster]; e != nil {
		d.oldest.Remove(e)
		delete(d.unknown, cluster)
	}
}

// confirm gives clusters that turned out to be known a place among these. One for
// which there is none is released: its next pick is refused. It is called holding no
// lock.
func (s *Sources) confirm(changes []resolver.Change) {
	if s.followed == nil {
		return
	}
	d := &s.onDemand
	var released ledger.Ended
	d.mu.Lock()
	for _, c := range changes {
		cluster, ok := resolver.Cluster(c.Target)
		e := d.unknown[cluster]
		if !ok || e == nil || !s.isKnown(cluster) {
			continue
		}
		if len(d.known) < d.maxKnown {
			d.removeUnknown(cluster)
			d.known[cluster] = of(e)
			continue
		}
		of(e).refused = true
		s.resolving.Lock()
		gone := s.follow(s.resolver.Release(cluster))
		s.resolving.Unlock()
		released = released.With(gone)
	}
	d.mu.Unlock()
	released.Close()
}

// isKnown reports whether a cluster's own target is hosted and known.
func (s *Sources) isKnown(cluster string) bool {
	t := s.targets.Hosted().Own(cluster)
	return t != nil && t.View().Only.Known()
}

// stopDemand ends the sweeps. No cluster is demanded after it.
func (s *Sources) stopDemand() {
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
func (s *Sources) sweepDemanded(ctx context.Context) {
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

func (s *Sources) sweep(now time.Time) {
	d := &s.onDemand
	d.mu.Lock()
	var idle []string
	for cluster, c := range d.known {
		switch known := s.isKnown(cluster); {
		case s.expired(c, now, known):
			idle = append(idle, cluster)
			delete(d.known, cluster)
		case !known && len(d.unknown) < d.maxUnknown: // the server has taken it back
			delete(d.known, cluster)
			d.addUnknown(c)
		}
	}
	for cluster, e := range d.unknown {
		if s.expired(of(e), now, false) {
			idle = append(idle, cluster)
			d.removeUnknown(cluster)
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
	gone.Close()
}

// expired reports whether nobody has picked from a cluster for so long that it is to
// be released.
func (s *Sources) expired(c *demanded, now time.Time, known bool) bool {
	if t := s.targets.Hosted().Own(c.cluster); t != nil && t.TakeUsed() {
		c.used = now
		return false
	}
	stays := s.onDemand.idle
	if !known {
		stays = min(stays, UnknownIdle)
	}
	return now.Sub(c.used) >= stays
}

// state counts the places that are taken.
func (d *onDemand) state() OnDemandState {
	d.mu.Lock()
	defer d.mu.Unlock()
	return OnDemandState{
		Clusters: len(d.known) + len(d.unknown), Max: d.maxKnown,
		Known: len(d.known), Unknown: len(d.unknown), MaxUnknown: d.maxUnknown,
	}
}
