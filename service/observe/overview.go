package observe

import (
	"context"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
)

const (
	// overviewInterval is how often all clusters are looked at for those who
	// watch them.
	overviewInterval = time.Second
	// maxRemoved is how many names of removed clusters are remembered, so that
	// watchers can be told of them that were away.
	maxRemoved = 10_000
)

// WatchedCluster is one cluster in short, with what is counted of it.
type WatchedCluster struct {
	ClusterSummary

	// Counts has no localities.
	Counts ClusterCounts `json:"counts"`
}

// WatchClusters watches all clusters whose names begin with prefix, as Clusters
// returns them.
//
// A message "resync" has {"clusters":[…]}, a [WatchedCluster] of each, by name. A message
// "update", at most once a second, has {"clusters":[…],"removed":["…"]}: those that
// changed since the last message, and the names of those that are no more. It
// begins with a resync, or, after a lastID that is still known, with what changed
// since. It fails with RateLimited and ShuttingDown.
func (ws *Watches) WatchClusters(prefix, lastID string) (*Watch, error) {
	return ws.admit(func() (reader, error) {
		o := ws.overview
		if o == nil {
			o = &overview{watches: ws, rows: make(map[string]*row)}
			o.current.Store(&photograph{replaced: make(chan struct{})})
			ws.overview = o
			o.stop = ws.run(o.run)
		}
		o.readers++
		at, _ := strconv.ParseUint(lastID, 10, 64) // what is no number is nobody's
		return &overviewReader{overview: o, prefix: prefix, at: at}, nil
	})
}

// overview is all clusters for those who watch them.
type overview struct {
	// Fixed after build.
	watches *Watches
	stop    context.CancelFunc

	readers int // guarded by the watches' mu

	current atomic.Pointer[photograph]

	// Its goroutine's only.
	rows  map[string]*row
	looks uint64
}

// row is a cluster in the overview.
type row struct {
	line    line
	mark    mark
	targets []string
	told    WatchedCluster // without the time
	looked  uint64         // the last look that found it
}

// line is a cluster in a photograph: encoded once for all. It is never changed.
type line struct {
	name    string
	changed uint64 // the photograph that has it first
	json    []byte
}

// removal is a cluster that is no more.
type removal struct {
	name string
	at   uint64 // the first photograph without it
}

// photograph is the overview at one moment. It is never changed but for the
// channel that tells of its replacement.
type photograph struct {
	at       uint64    // grows by one; zero before the first look
	since    uint64    // from which on all changes are known
	all      []line    // by name
	changed  []line    // since the one before, by name
	removed  []removal // those that are remembered, the oldest first
	replaced chan struct{}
}

// run looks at all clusters until ctx ends.
func (o *overview) run(ctx context.Context) {
	ticker := time.NewTicker(overviewInterval)
	defer ticker.Stop()
	for {
		o.look()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// look replaces the photograph if anything changed. IDs begin with the time, so
// that those of another overview are known to be none of this one's.
func (o *overview) look() {
	now := time.Now().UTC()
	old := o.current.Load()
	next := &photograph{at: old.at + 1, since: old.since, removed: slices.Clip(old.removed), replaced: make(chan struct{})}
	if old.at == 0 {
		next.at = uint64(now.UnixMicro())
		next.since = next.at
	}
	o.looks++
	before := len(o.rows)
	o.watches.state.ledger.Hosted().Clusters(func(m *ledger.Cluster, targets []string) {
		if l, changed := o.see(m, targets, next.at, now); changed {
			next.changed = append(next.changed, l)
		}
	})
	same := len(o.rows) == before
	for name, r := range o.rows {
		if r.looked != o.looks {
			delete(o.rows, name)
			same = false
			next.removed = append(next.removed, removal{name, next.at})
		}
	}
	if same && len(next.changed) == 0 && old.at != 0 {
		return
	}
	slices.SortFunc(next.changed, byName)
	next.all = o.lines(old.all, next.changed, same)
	next.remember(o.rows)
	o.current.Store(next)
	close(old.replaced)
}

// see looks at one cluster.
func (o *overview) see(m *ledger.Cluster, targets []string, at uint64, now time.Time) (l line, changed bool) {
	r := o.rows[m.Name]
	if r == nil {
		r = &row{line: line{name: m.Name}}
		o.rows[m.Name] = r
	}
	r.looked = o.looks
	mark := markOf(m)
	if mark == r.mark && slices.Equal(targets, r.targets) {
		return line{}, false
	}
	r.mark, r.targets = mark, targets
	cluster := WatchedCluster{ClusterSummary: summarize(m), Counts: counted(m, false)}
	cluster.Targets = targets
	if reflect.DeepEqual(cluster, r.told) {
		return line{}, false
	}
	r.told = cluster
	cluster.Counts.Time = now
	r.line = line{m.Name, at, encode(cluster)}
	return r.line, true
}

// lines are those of all rows, by name. same tells that they are of the same
// clusters as the old ones.
func (o *overview) lines(old, changed []line, same bool) []line {
	if same {
		all := slices.Clone(old)
		i := 0
		for _, l := range changed {
			n, _ := slices.BinarySearchFunc(all[i:], l, byName)
			i += n
			all[i] = l
		}
		return all
	}
	all := make([]line, 0, len(o.rows))
	for _, r := range o.rows {
		all = append(all, r.line)
	}
	slices.SortFunc(all, byName)
	return all
}

func byName(a, b line) int { return strings.Compare(a.name, b.name) }

// remember forgets the removals of what is there again, and the oldest that are
// too many.
func (p *photograph) remember(rows map[string]*row) {
	if len(p.removed) == 0 {
		return
	}
	p.removed = slices.DeleteFunc(slices.Clone(p.removed), func(r removal) bool { return rows[r.name] != nil })
	if more := len(p.removed) - maxRemoved; more > 0 {
		p.since = p.removed[more-1].at
		p.removed = p.removed[more:]
	}
}

// overviewReader is how far a watcher of the overview is.
type overviewReader struct {
	overview *overview
	prefix   string
	at       uint64 // the photograph that it has; zero for none
}

func (r *overviewReader) next() (*Message, <-chan struct{}) {
	p := r.overview.current.Load()
	if p.at == 0 || r.at == p.at {
		return nil, p.replaced
	}
	last := r.at
	r.at = p.at
	m := &Message{Type: "resync", ID: strconv.FormatUint(p.at, 10)}
	if last < p.since || last > p.at {
		m.Data = r.data(p.all, 0, nil)
		return m, nil
	}
	lines := p.all
	if last == p.at-1 {
		lines = p.changed
	}
	removed := []string{}
	for _, gone := range p.removed {
		if gone.at > last && strings.HasPrefix(gone.name, r.prefix) {
			removed = append(removed, gone.name)
		}
	}
	if len(removed) == 0 && !slices.ContainsFunc(lines, func(l line) bool { return r.tells(l, last) }) {
		return nil, p.replaced
	}
	m.Type, m.Data = "update", r.data(lines, last, removed)
	return m, nil
}

// tells reports whether the watcher is to be told of a line.
func (r *overviewReader) tells(l line, last uint64) bool {
	return l.changed > last && strings.HasPrefix(l.name, r.prefix)
}

var (
	beginClusters = []byte(`{"clusters":[`)
	comma         = []byte(",")
	endClusters   = []byte("]}")
)

// data is JSON of those lines that changed after last. removed is nil in a resync.
func (r *overviewReader) data(lines []line, last uint64, removed []string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(beginClusters) {
			return
		}
		first := true
		for _, l := range lines {
			if !r.tells(l, last) {
				continue
			}
			if !first && !yield(comma) {
				return
			}
			first = false
			if !yield(l.json) {
				return
			}
		}
		if removed == nil {
			yield(endClusters)
			return
		}
		yield([]byte(`],"removed":` + string(encode(removed)) + "}"))
	}
}

func (r *overviewReader) leave() {
	o, ws := r.overview, r.overview.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if o.readers--; o.readers == 0 {
		o.stop()
		ws.overview = nil
	}
}
