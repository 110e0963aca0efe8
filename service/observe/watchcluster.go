package observe

import (
	"context"
	"errors"
	"hash/fnv"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
)

const (
	// lookInterval is how often a watched cluster's generation is looked at:
	// its state is told at most so often.
	lookInterval = 100 * time.Millisecond
	// countInterval is how often its counts are read, and the whole state, of which
	// parts may change without the generation.
	countInterval = time.Second
)

// watchedCluster is what watchers of one cluster may have in common.
type watchedCluster struct {
	cluster   string
	target    string // its label; empty where the watcher named none
	endpoints bool
}

// WatchCluster watches a cluster as Cluster describes it.
//
// A message "state" has its [ClusterState]: at once, unless lastID is its ID or
// its generation, and then whenever it is another one, at most every 100 ms;
// within a second where the generation is not: an endpoint that connects, weights
// that follow load, or a source that is away. What only counts makes no other
// state. A message "counts"
// has its [ClusterCounts]: at once, and once a second if they are others. A message
// "gone" without data is the last one: the cluster is no more. It fails as Cluster
// does, and with RateLimited and ShuttingDown.
func (ws *Watches) WatchCluster(name, target string, endpoints bool, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, error) {
		m, err := ws.state.ledger.Find(name, target)
		if err != nil {
			return nil, err
		}
		key := watchedCluster{cluster: name, endpoints: endpoints}
		if target != "" {
			key.target = m.Target.Label
		}
		f := ws.clusters[key]
		if f == nil {
			f = &clusterFeed{watches: ws, watched: key, more: make(chan struct{})}
			ws.clusters[key] = f
			f.stop = ws.run(f.run)
		}
		f.readers++
		return &clusterReader{feed: f, lastID: lastID, from: f.joined()}, nil
	})
}

// clusterFeed is one cluster for all who watch it.
type clusterFeed struct {
	// Fixed after build.
	watches *Watches
	watched watchedCluster
	stop    context.CancelFunc

	readers int // guarded by the watches' mu

	// Its goroutine's only.
	tree *ledger.Target
	last looked // that made the state
	tick int

	mu     sync.Mutex // guards what follows
	looks  uint64     // how many states were made
	at     time.Time  // when the last was
	stale  bool       // somebody came who needs newer ones
	state  told
	counts told
	count  ClusterCounts // in counts, without the time
	gone   bool
	more   chan struct{} // closed when there is something to tell
}

// looked is what tells cheaply that a state may be another.
type looked struct {
	summary  ClusterSummary // without what only counts
	revision uint64         // of its tree
	ambient  []AmbientError
}

// told is what watchers are told, encoded once for all.
type told struct {
	version uint64 // grows with each that is to be told to those who had the last
	id      string
	data    []byte
}

// joined returns which look a watcher that comes now is to begin with: one that
// is not older than a second.
func (f *clusterFeed) joined() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looks > 0 && time.Since(f.at) < countInterval {
		return f.looks
	}
	f.stale = true
	return f.looks + 1
}

// run looks at the cluster until ctx ends, or the cluster is gone.
func (f *clusterFeed) run(ctx context.Context) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for f.look(ctx) {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look tells what is new. It reports whether there is a cluster to look at.
func (f *clusterFeed) look(ctx context.Context) bool {
	m, err := f.watches.state.ledger.Find(f.watched.cluster, f.watched.target)
	if err != nil {
		f.end()
		return false
	}
	second := f.tick%int(countInterval/lookInterval) == 0
	f.tick++
	f.mu.Lock()
	stale := f.stale
	f.mu.Unlock()
	if second || stale {
		f.read(m, stale) // before the state, which is what lets a newcomer begin
	}
	changed := m.Target != f.tree || m.Target.Channel.Generation() != f.last.summary.Generation
	if stale || changed || second && !reflect.DeepEqual(f.glance(m), f.last) {
		f.describe(ctx, m)
	}
	return true
}

// describe makes the state. Who had the last one is told only if it changed.
func (f *clusterFeed) describe(ctx context.Context, m *ledger.Cluster) {
	s := f.watches.state
	last := f.glance(m) // what is described is no older
	state, err := s.Cluster(ctx, f.watched.cluster, f.watched.target, f.watched.endpoints)
	if err != nil {
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.Internal {
			s.options.Logger.Warn("watched cluster could not be described", "cluster", f.watched.cluster, "error", err)
		}
		return // the next look finds out whether there is a cluster still
	}
	next := told{data: encode(state)}
	state.forgetCounts()
	next.id = stateID(state)
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.looks == 0 || m.Target != f.tree || next.id != f.state.id
	f.tree, f.last = m.Target, last
	next.version = f.state.version
	if changed {
		next.version++
	}
	f.state, f.at = next, time.Now()
	if !changed && !f.stale {
		return
	}
	f.stale = false
	f.looks++
	f.ring()
}

// glance looks at the cluster without asking its tree.
func (f *clusterFeed) glance(m *ledger.Cluster) looked {
	l := looked{summary: summarize(m), revision: m.Target.Channel.ClusterSummary(m.Name).Revision, ambient: ambientList(m.Ambient())}
	l.summary.Targets = f.watches.state.ledger.Hosted().LivesIn(m.Name)
	if b := l.summary.Breaker; b != nil {
		l.summary.Breaker = b.withoutCounts()
	}
	return l
}

// read makes the counts.
func (f *clusterFeed) read(m *ledger.Cluster, again bool) {
	count := counted(m, true)
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.counts.version == 0 || !reflect.DeepEqual(count, f.count)
	if !changed && !again {
		return
	}
	f.count = count
	count.Time = time.Now().UTC()
	f.counts.data = encode(count)
	if changed {
		f.counts.version++
	}
	f.ring()
}

// end tells that the cluster is gone. Who asks for it from now on looks anew.
func (f *clusterFeed) end() {
	f.watches.mu.Lock()
	if f.watches.clusters[f.watched] == f {
		delete(f.watches.clusters, f.watched)
	}
	f.watches.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	f.ring()
}

// ring wakes who waits. It is called under f.mu.
func (f *clusterFeed) ring() {
	close(f.more)
	f.more = make(chan struct{})
}

// forgetCounts leaves what a state has but for what only counts, or follows from
// the time: what makes it another than the one before.
func (c *ClusterState) forgetCounts() {
	c.Age, c.Leases = "", 0
	if c.Breaker != nil {
		c.Breaker = c.Breaker.withoutCounts()
	}
	forgetDrops(c.Drops)
	for i := range c.Leaves {
		if c.Leaves[i].Breaker != nil {
			c.Leaves[i].Breaker = c.Leaves[i].Breaker.withoutCounts()
		}
		forgetDrops(c.Leaves[i].Drops)
	}
	for _, p := range c.Priorities {
		for i := range p.Localities {
			p.Localities[i].Picks = 0
		}
	}
}

func (b *BreakerState) withoutCounts() *BreakerState {
	return &BreakerState{MaxRequests: b.MaxRequests, LimitFrom: b.LimitFrom}
}

func forgetDrops(drops []DropState) {
	for i := range drops {
		drops[i].Dropped = 0
	}
}

// stateID is the generation of a state, and what tells it from others of the same
// generation.
func stateID(c *ClusterState) string {
	h := fnv.New64a()
	_, _ = h.Write(encode(c)) // it returns no error
	return strconv.FormatInt(c.Generation, 10) + "." + strconv.FormatUint(h.Sum64(), 36)
}

// clusterReader is how far a watcher of a cluster is.
type clusterReader struct {
	feed   *clusterFeed
	lastID string // the state that it has from before
	from   uint64 // the first look that it is told

	state, counts uint64 // versions that it has
	ended         bool
}

func (r *clusterReader) next() (*Message, <-chan struct{}) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case r.ended:
		return nil, nil
	case f.gone:
		r.ended = true
		return &Message{Type: "gone", Data: whole([]byte("{}"))}, nil
	case f.looks < r.from:
		return nil, f.more
	}
	if r.state != f.state.version {
		known := r.state == 0 && r.knows(f.state.id)
		r.state = f.state.version
		if !known {
			return &Message{Type: "state", ID: f.state.id, Data: whole(f.state.data)}, nil
		}
	}
	if r.counts != f.counts.version {
		r.counts = f.counts.version
		return &Message{Type: "counts", Data: whole(f.counts.data)}, nil
	}
	return nil, f.more
}

// knows reports whether the watcher has the state of an ID from before.
func (r *clusterReader) knows(id string) bool {
	generation, _, _ := strings.Cut(id, ".")
	return r.lastID == id || r.lastID == generation
}

func (r *clusterReader) leave() {
	f, ws := r.feed, r.feed.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if f.readers--; f.readers > 0 {
		return
	}
	f.stop()
	if ws.clusters[f.watched] == f {
		delete(ws.clusters, f.watched)
	}
}
