package observe

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/ledger"
)

const (
	// overviewInterval is the interval in which the counters of all clusters are read.
	overviewInterval = time.Second
	// maxRemoved is how many names of removed clusters are remembered for watchers that
	// resume.
	maxRemoved = 10_000
)

// WatchedCluster is the summary of a cluster, with its counts.
type WatchedCluster struct {
	ClusterSummary

	// Counts has no localities.
	Counts ClusterCounts `json:"counts"`
}

// WatchClusters watches all clusters of a scope whose names begin with prefix, as Clusters
// returns them.
//
// A message "resync" has {"clusters":[…]}, a [WatchedCluster] of each, by name. A message
// "update", at most once a second, has {"clusters":[…],"removed":["…"]}: the clusters that
// changed since the last message, and the names of removed ones. The watch begins with a
// resync, or, after a lastID that is still known, with what changed since. It fails with
// RateLimited and ShuttingDown.
func (ws *Watches) WatchClusters(in *ledger.Scope, prefix, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, *sharedFeed, error) {
		o, shared := join(ws, "overview", func() *overview { return newOverview(ws.state) })
		at, _ := strconv.ParseUint(lastID, 10, 64) // an ID that is not a number is unknown
		return &overviewReader{overview: o, subscriber: o.add(), scope: in, prefix: prefix, at: at}, shared, nil
	})
}

// overview is the feed of all clusters. Once a second it reads the counters of each, and
// describes those whose counters or versions changed.
type overview struct {
	latest[overviewView]
	state *State

	// Its goroutine's only.
	rows  map[string]*row
	names []string // of rows, in order
	looks uint64
}

type row struct {
	line line
	seen seen
	look uint64 // the last one that found it
}

// seen is everything that can change what is shown of a cluster, as small values.
type seen struct {
	counters   counters
	generation int64
	stale      bool
	targets    string
	notes      string
	// These may change without the generation.
	state           connectivity.State
	priority        int
	all, inPriority policy.Census
	trouble         string
}

// line is a cluster in a view, encoded once for all. It is never changed.
type line struct {
	naming  naming
	changed uint64 // the first view that has it
	json    []byte
}

type removal struct {
	name string
	at   uint64 // the first view without it
}

// overviewView is the overview at one moment. It is never changed.
type overviewView struct {
	at      uint64    // grows by one; zero before the first look
	since   uint64    // from which on all changes are known
	all     []line    // by name
	changed []line    // since the view before, by name
	removed []removal // those that are remembered, the oldest first
}

func newOverview(s *State) *overview {
	o := &overview{state: s, rows: make(map[string]*row)}
	o.view.Store(&overviewView{})
	return o
}

func (o *overview) run(ctx context.Context) {
	every(ctx, overviewInterval, func() { o.look(ctx) })
}

// look replaces the view if anything changed. IDs begin with the time, so that an ID of
// another overview is unknown in this one.
func (o *overview) look(ctx context.Context) {
	now := time.Now().UTC()
	old := o.view.Load()
	next := &overviewView{at: old.at + 1, since: old.since, removed: slices.Clip(old.removed)}
	if old.at == 0 {
		next.at = uint64(now.UnixMicro())
		next.since = next.at
	}
	o.looks++
	before := len(o.rows)
	h, notes := o.state.ledger.Hosted(), o.state.notes()
	h.Clusters(func(m *ledger.Cluster, targets []string) {
		if l, changed := o.see(h, m, targets, notes(m), next.at, now); changed {
			next.changed = append(next.changed, l)
		}
	})
	same := len(o.rows) == before
	for name, r := range o.rows {
		if r.look != o.looks {
			delete(o.rows, name)
			same = false
			next.removed = append(next.removed, removal{name, next.at})
		}
	}
	if same && len(next.changed) == 0 && old.at != 0 {
		return
	}
	slices.SortFunc(next.changed, func(a, b line) int { return strings.Compare(a.naming.Name, b.naming.Name) })
	if !same {
		o.names = slices.Sorted(maps.Keys(o.rows))
	}
	next.all = make([]line, len(o.names))
	for i, name := range o.names {
		next.all[i] = o.rows[name].line
	}
	next.remember(o.rows)
	o.publish(ctx, next)
}

// see looks at one cluster, and encodes it if it changed.
func (o *overview) see(h *ledger.Hosted, m *ledger.Cluster, targets, notes []string, at uint64, now time.Time) (l line, changed bool) {
	r := o.rows[m.Name]
	if r == nil {
		r = &row{}
		o.rows[m.Name] = r
	}
	r.look = o.looks
	seen := seenOf(h, m, targets)
	seen.notes = strings.Join(notes, "\n")
	if seen == r.seen {
		return line{}, false
	}
	r.seen = seen
	cluster := WatchedCluster{ClusterSummary: summarizeAll(h, m, targets, notes), Counts: counted(m, false)}
	cluster.Counts.Time = now
	r.line = line{namingOf(&cluster.ClusterSummary), at, encode(cluster)}
	return r.line, true
}

func seenOf(h *ledger.Hosted, m *ledger.Cluster, targets []string) seen {
	sum := m.Target.Channel.ClusterSummary(m.Name)
	out := seen{
		counters: countersOf(m, false), generation: m.Target.Channel.Generation(), stale: m.Stale(),
		targets: strings.Join(targets, " "), state: sum.State, priority: sum.Priority, trouble: troubleOfAll(h, m, targets).String(),
	}
	for i, c := range sum.Priorities {
		out.all = out.all.Add(c)
		if i == sum.Priority {
			out.inPriority = c
		}
	}
	return out
}

// remember forgets the removals of clusters that are back, and the oldest removals above
// the limit.
func (p *overviewView) remember(rows map[string]*row) {
	if len(p.removed) == 0 {
		return
	}
	p.removed = slices.DeleteFunc(slices.Clone(p.removed), func(r removal) bool { return rows[r.name] != nil })
	if more := len(p.removed) - maxRemoved; more > 0 {
		p.since = p.removed[more-1].at
		p.removed = p.removed[more:]
	}
}

// overviewReader is the position of a watcher of the overview.
type overviewReader struct {
	*subscriber

	overview *overview
	scope    *ledger.Scope
	prefix   string
	at       uint64 // the view that it has; zero for none
}

func (r *overviewReader) next() (m *Message, more bool) {
	p := r.overview.view.Load()
	if p.at == 0 || r.at == p.at {
		return nil, true
	}
	last := r.at
	r.at = p.at
	m = &Message{Type: "resync", ID: strconv.FormatUint(p.at, 10)}
	if last < p.since || last > p.at {
		m.Pieces = r.data(p.all, 0, nil)
		return m, true
	}
	lines := p.all
	if last == p.at-1 {
		lines = p.changed
	}
	removed := []string{}
	for _, gone := range p.removed {
		if gone.at > last && strings.HasPrefix(gone.name, r.prefix) && r.scope.Cluster(gone.name) {
			removed = append(removed, gone.name)
		}
	}
	if len(removed) == 0 && !slices.ContainsFunc(lines, func(l line) bool { return r.wants(l, last) }) {
		return nil, true
	}
	m.Type, m.Pieces = "update", r.data(lines, last, removed)
	return m, true
}

// wants reports whether a message after the view last has the line.
func (r *overviewReader) wants(l line, last uint64) bool {
	return l.changed > last && strings.HasPrefix(l.naming.Name, r.prefix) && r.scope.Cluster(l.naming.Name)
}

// data is JSON of those lines that changed after last. removed is nil in a resync.
func (r *overviewReader) data(lines []line, last uint64, removed []string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		before := []byte(`{"clusters":[`)
		for _, l := range lines {
			if r.wants(l, last) {
				if !yield(before) || !yield(l.naming.within(r.scope, l.json, masked[WatchedCluster])) {
					return
				}
				before = []byte(",")
			}
		}
		end := "]}"
		if removed != nil {
			end = `],"removed":` + string(encode(removed)) + "}"
		}
		if before[0] == '{' { // there is no cluster
			end = string(before) + end
		}
		yield([]byte(end))
	}
}

// Within is that of [ClusterSummary], with the counts.
func (c WatchedCluster) Within(s *ledger.Scope) WatchedCluster {
	c.ClusterSummary, c.Counts = c.ClusterSummary.Within(s), c.Counts.Within(s)
	return c
}
