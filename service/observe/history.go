package observe

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/history"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// DefaultHistoryBytes is the default budget of the history of all clusters.
const DefaultHistoryBytes = 64 << 20

// History records the counters of clusters every second.
type History struct {
	// Fixed after build.
	ledger *ledger.Ledger
	store  *history.Store // nil if the history is disabled

	stop    context.CancelFunc
	running sync.WaitGroup

	// Its goroutine's only: of the last step, and a map to reuse.
	last, spare map[*ledger.Record]recorded
}

// recorded is what the recorder remembers of a record.
type recorded struct {
	seen  bool
	picks uint64 // the total
}

// NewHistory returns the history of the clusters of a ledger, with a budget of memory; 0
// is [DefaultHistoryBytes], and a negative number disables it.
func NewHistory(l *ledger.Ledger, bytes int) *History {
	h := &History{ledger: l, stop: func() {}, last: make(map[*ledger.Record]recorded), spare: make(map[*ledger.Record]recorded)}
	switch {
	case bytes == 0:
		h.store = history.NewStore(DefaultHistoryBytes)
	case bytes > 0:
		h.store = history.NewStore(bytes)
	}
	return h
}

// Start records every second until Close.
func (h *History) Start() {
	if h.store == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	h.running.Go(func() { h.run(ctx) })
}

// Close ends the recording.
func (h *History) Close() {
	h.stop()
	h.running.Wait()
}

func (h *History) run(ctx context.Context) {
	until := func() time.Duration { return time.Until(history.Next(time.Now())) }
	timer := time.NewTimer(until())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		h.step(time.Now())
		timer.Reset(until())
	}
}

// step records a step of every cluster.
func (h *History) step(now time.Time) {
	h.store.Record(now, func(to *history.Recorder) {
		for t := range h.ledger.Hosted().All() {
			for _, m := range t.View().Clusters {
				h.record(to, m)
			}
		}
	})
	h.last, h.spare = h.spare, h.last
	clear(h.spare)
}

// record records a step of one cluster, from its first pick on.
func (h *History) record(to *history.Recorder, m *ledger.Cluster) {
	name := history.Name{Target: m.Target.Label, Cluster: m.Name}
	last := h.last[m.Record]
	if !m.Known() {
		h.spare[m.Record] = last
		return
	}
	now := recorded{seen: true, picks: picked(m)}
	h.spare[m.Record] = now
	if now.picks == 0 && !to.Known(name) {
		return
	}
	c := to.Begin(name, last.picks == 0)
	defer to.End(c)
	if !last.seen { // the cluster may have been removed and added again
		c.Restart()
	}
	if m.OwnSeries {
		m.Picks.Each(func(of ledger.Result, n uint64) { c.Count(history.Series{Kind: history.Picks, Name: string(of)}, n) })
	} else {
		c.Count(history.Series{Kind: history.Picks, Name: string(ledger.OK)}, now.picks)
	}
	priority := uint64(history.NoPriority)
	if p := m.Target.Channel.ClusterSummary(m.Name).Priority; p >= 0 {
		priority = uint64(p)
	}
	c.Gauge(history.Series{Kind: history.Priority}, priority)
	cc := m.ClusterConfig()
	aggregate := cc.Err == nil && cc.Cluster.Type == resource.ClusterAggregate
	for _, l := range m.Leaves {
		recordLeaf(c, l, aggregate)
	}
}

// picked returns the total of a cluster's picks; without metrics of its own, of the
// successful ones.
func picked(m *ledger.Cluster) uint64 {
	if m.OwnSeries {
		return m.Picks.Total()
	}
	return m.Places.Total()
}

// recordLeaf records what a leaf drops, and how full its circuit breaker is.
func recordLeaf(c *history.Cluster, l ledger.Leaf, aggregate bool) {
	name := ""
	if aggregate {
		name = l.Cluster.Name
	}
	c.Gauge(history.Series{Kind: history.InFlight, Leaf: name}, uint64(max(0, l.Counters.Breaker.InFlight())))
	c.Gauge(history.Series{Kind: history.Limit, Leaf: name}, uint64(l.Cluster.MaxRequests))
	if l.Assignment == nil || len(l.Assignment.Drops) == 0 {
		return
	}
	counts := l.Counters.Drops()
	for i, d := range l.Assignment.Drops {
		if !slices.ContainsFunc(l.Assignment.Drops[:i], func(o resource.Drop) bool { return o.Category == d.Category }) {
			c.Count(history.Series{Kind: history.Drops, Leaf: name, Name: d.Category}, counts[d.Category])
		}
	}
}
