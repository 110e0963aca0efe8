package observe

import (
	"context"
	"errors"
	"hash/maphash"
	"strconv"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/wake"
)

const (
	// stateInterval is the minimum time between two states of a watched cluster.
	stateInterval = 100 * time.Millisecond
	// countInterval is the interval in which its counters are read. It is also the
	// minimum time between two states of the same generation.
	countInterval = time.Second
)

type watchedCluster struct {
	cluster   string
	target    string // its label; empty if the watcher named none
	endpoints bool
}

// WatchCluster watches a cluster as Cluster describes it.
//
// A message "state" has the [ClusterState]: at once, unless lastID is its ID or its
// generation, and then after each change: at most every 100 ms, or every second if the
// generation is the same (an endpoint connects, weights follow load, a management server
// is unreachable, the fleet is left). Counts alone do not make another state. A message "counts" has the
// [ClusterCounts]: at once, and once a second if they changed. The last message is
// "gone", without data, after the cluster was removed. Both have what [ClusterState.Within]
// leaves of them. The errors are those of Cluster, RateLimited and ShuttingDown.
func (ws *Watches) WatchCluster(in *ledger.Scope, name, target string, endpoints bool, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		m, err := ws.state.ledger.Find(name, target)
		if err != nil {
			return nil, nil, err
		}
		key := watchedCluster{cluster: name, endpoints: endpoints}
		if target != "" {
			key.target = m.Target.Label
		}
		f, shared := join(ws, key, func() *clusterFeed {
			f := &clusterFeed{watches: ws, watched: key, requested: wake.NewOne()}
			f.view.Store(&clusterView{})
			return f
		})
		return &clusterReader{feed: f, subscriber: f.add(), scope: in, lastID: lastID, from: f.request()}, shared, nil
	})
}

// clusterFeed is the feed of one cluster. Its goroutine waits for [ledger.Target.Changed],
// and otherwise only reads counters, once a second.
type clusterFeed struct {
	latest[clusterView]

	// Fixed after build.
	watches   *Watches
	watched   watchedCluster
	requested wake.One // a new watcher needs a newer view

	// Its goroutine's only.
	last     look     // before the state was read
	counters counters // before the counts were read
}

// clusterView is what watchers receive, encoded once for all. It is never changed.
type clusterView struct {
	reads  uint64    // of the state
	at     time.Time // of the last one
	state  encoded
	counts encoded
	gone   bool
}

type encoded struct {
	version uint64 // grows if those who have the last one must receive it
	digest  string // identifies the content; the ID of a state
	naming  naming
	message *Message
}

// replace returns a newer message that was read after e.
func (e encoded) replace(digest string, n naming, m *Message) encoded {
	next := encoded{version: e.version, digest: digest, naming: n, message: m}
	if e.version == 0 || digest != e.digest {
		next.version++
	}
	return next
}

// request returns which read of the state a new watcher begins with: one that is less
// than a second old.
func (f *clusterFeed) request() uint64 {
	v := f.view.Load()
	if v.reads > 0 && time.Since(v.at) < countInterval {
		return v.reads
	}
	f.requested.Wake()
	return v.reads + 1
}

func (f *clusterFeed) run(ctx context.Context) {
	second := time.NewTicker(countInterval)
	defer second.Stop()
	var target *ledger.Target
	var changed <-chan struct{}
	requested, sample, notified := false, true, false
	for {
		if target != nil {
			changed = target.Changed.Wait()
		}
		m, err := f.watches.state.ledger.Find(f.watched.cluster, f.watched.target)
		if err != nil {
			f.end(ctx)
			return
		}
		if m.Target != target { // wait for its changes before anything of it is read
			target = m.Target
			continue
		}
		select {
		case <-f.requested:
			requested = true
		default:
		}
		if requested || sample {
			f.readCounts(ctx, m, requested) // before the state, with which a new watcher begins
		}
		// It is due with another generation, or with any other change and a second later.
		due := m.Record != f.last.record || m.Target.Channel.Generation() != f.last.generation || sample && f.lookAt(m) != f.last
		if (due || requested) && f.readState(ctx, m) {
			requested = false
		}
		if due || notified {
			select {
			case <-ctx.Done():
				return
			case <-time.After(stateInterval):
			}
		}
		sample, notified = false, false
		select {
		case <-ctx.Done():
			return
		case <-changed:
			notified = true
		case <-second.C:
			sample = true
		case <-f.requested:
			requested = true
		}
	}
}

// look is everything that can change a cluster's state, as small values: looks that are
// equal have equal states.
type look struct {
	record     *ledger.Record // another one in another target
	config     uint64
	generation int64
	revision   uint64
	stale      bool
	ambient    *ledger.Ambient
	targets    string
	limits     string // of the fleet
	trouble    string
}

func (f *clusterFeed) lookAt(m *ledger.Cluster) look {
	channel, h := m.Target.Channel, f.watches.state.ledger.Hosted()
	targets := h.LivesIn(m.Name)
	return look{
		record: m.Record, config: m.Version, generation: channel.Generation(), revision: channel.ClusterSummary(m.Name).Revision,
		stale: m.Stale(), ambient: m.Ambient(),
		targets: strings.Join(targets, " "), limits: fleetLimits(m), trouble: troubleOfAll(h, m, targets).String(),
	}
}

// fleetLimits returns the limits of the fleet that are in force, and whether this daemon may have shares of
// them; empty without such limits.
func fleetLimits(m *ledger.Cluster) string {
	var out []byte
	for _, l := range m.Leaves {
		if s, ok := l.Fleet(); ok {
			out = strconv.AppendInt(strconv.AppendBool(out, s.Joined), s.Limit, 10)
		}
	}
	return string(out)
}

// readState reads and encodes the state, and reports whether it could.
func (f *clusterFeed) readState(ctx context.Context, m *ledger.Cluster) bool {
	s := f.watches.state
	last := f.lookAt(m) // what is read is not older
	state, err := s.Cluster(ctx, f.watched.cluster, f.watched.target, f.watched.endpoints)
	if err != nil {
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.Internal {
			s.options.Logger.Warn("watched cluster could not be described", "cluster", f.watched.cluster, "error", err)
		}
		return false
	}
	f.last = last
	data := encode(state)
	state.forgetCounts()
	next := *f.view.Load()
	id := strconv.FormatInt(state.Generation, 10) + "." + digest(state)
	next.state = next.state.replace(id, namingOf(&state.ClusterSummary), &Message{Type: "state", ID: id, Data: data})
	next.reads++
	next.at = time.Now()
	f.publish(ctx, &next)
	return true
}

// readCounts reads the counters, and encodes them if they changed, or a new watcher
// needs them.
func (f *clusterFeed) readCounts(ctx context.Context, m *ledger.Cluster, requested bool) {
	counters := countersOf(m, true)
	if counters == f.counters && !requested {
		return
	}
	f.counters = counters
	counts := counted(m, true)
	d := digest(counts)
	counts.Time = time.Now().UTC()
	next := *f.view.Load()
	next.counts = next.counts.replace(d, naming{Name: m.Name, Target: m.Target.Label}, &Message{Type: "counts", Data: encode(counts)})
	f.publish(ctx, &next)
}

func (f *clusterFeed) end(ctx context.Context) {
	f.watches.mu.Lock()
	f.watches.forget(f.watched, f)
	f.watches.mu.Unlock()
	f.publish(ctx, &clusterView{gone: true})
}

// forgetCounts removes counts, and what follows from the time: the rest makes a state
// another one.
func (c *ClusterState) forgetCounts() {
	c.Age, c.Leases = "", 0
	c.Breaker = c.Breaker.withoutCounts()
	forgetDrops(c.Drops)
	for i := range c.Leaves {
		c.Leaves[i].Breaker = c.Leaves[i].Breaker.withoutCounts()
		forgetDrops(c.Leaves[i].Drops)
	}
	for _, p := range c.Priorities {
		for i := range p.Localities {
			p.Localities[i].Picks = 0
		}
	}
}

func (b *BreakerState) withoutCounts() *BreakerState {
	if b == nil {
		return nil
	}
	out := &BreakerState{MaxRequests: b.MaxRequests, LimitFrom: b.LimitFrom}
	if b.Fleet != nil {
		out.Fleet = &FleetShare{Joined: b.Fleet.Joined, Limit: b.Fleet.Limit}
	}
	return out
}

func forgetDrops(drops []DropState) {
	for i := range drops {
		drops[i].Dropped = 0
	}
}

// digest returns a hash that is unpredictable: it does not confirm a guess of the names that a
// caller may not see.
func digest(v any) string {
	return strconv.FormatUint(maphash.Bytes(digests, encode(v)), 36)
}

var digests = maphash.MakeSeed()

// clusterReader is the position of a watcher of a cluster.
type clusterReader struct {
	*subscriber

	feed   *clusterFeed
	scope  *ledger.Scope
	lastID string // of the state that it has from before
	from   uint64 // the read of the state that it begins with

	state, counts uint64 // versions that it has
	ended         bool
}

var goneMessage = &Message{Type: "gone", Data: []byte("{}")}

func (r *clusterReader) next() (m *Message, more bool) {
	v := r.feed.view.Load()
	switch {
	case r.ended:
		return nil, false
	case v.gone:
		r.ended = true
		return goneMessage, true
	case v.reads < r.from:
		return nil, true
	}
	if r.state != v.state.version {
		first := r.state == 0
		r.state = v.state.version
		if !first || !r.knows(v.state.digest) {
			return v.state.within(r.scope, func(data []byte) []byte { return v.state.naming.within(r.scope, data, masked[*ClusterState]) }), true
		}
	}
	if r.counts != v.counts.version {
		r.counts = v.counts.version
		return v.counts.within(r.scope, func(data []byte) []byte { return v.counts.naming.countsWithin(r.scope, data) }), true
	}
	return nil, true
}

// within returns the message as a caller of a scope sees it: the one of all watchers, unless mask
// changes its data.
func (e *encoded) within(s *ledger.Scope, mask func(data []byte) []byte) *Message {
	m := e.message
	if s.All() {
		return m
	}
	data := mask(m.Data)
	if &data[0] == &m.Data[0] {
		return m
	}
	return &Message{Type: m.Type, ID: m.ID, Data: data}
}

// knows reports whether the watcher has the state of an ID from before.
func (r *clusterReader) knows(id string) bool {
	generation, _, _ := strings.Cut(id, ".")
	return r.lastID == id || r.lastID == generation
}
