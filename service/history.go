package service

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/history"
	"github.com/lbd-dev/lbd/xds/resource"
)

// DefaultHistoryBytes is the default budget of the history of all clusters.
const DefaultHistoryBytes = 64 << 20

// recorder fills the history. It reads the counters that picks count in anyway.
type recorder struct {
	store   *history.Store // nil where no history is kept; fixed after build
	stop    context.CancelFunc
	running sync.WaitGroup
}

// recorded is what the recorder remembers of an account. Only its goroutine uses
// it.
type recorded struct {
	seen  bool
	picks uint64 // how many there were in all
}

func newRecorder(bytes int) *recorder {
	r := &recorder{stop: func() {}}
	switch {
	case bytes == 0:
		r.store = history.NewStore(DefaultHistoryBytes)
	case bytes > 0:
		r.store = history.NewStore(bytes)
	}
	return r
}

// start records every second from now on, until close.
func (r *recorder) start(targets *targets) {
	if r.store == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	r.running.Go(func() { r.run(ctx, targets) })
}

func (r *recorder) close() {
	r.stop()
	r.running.Wait()
}

func (r *recorder) run(ctx context.Context, targets *targets) {
	until := func() time.Duration { return time.Until(history.Next(time.Now())) }
	timer := time.NewTimer(until())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		r.store.Record(time.Now(), targets.current.Load().record)
		timer.Reset(until())
	}
}

// record records a step of every cluster that was picked from.
func (h *hosted) record(r *history.Recorder) {
	for _, t := range h.clusters {
		if m := t.newest.Load().only; m.known() {
			m.record(r)
		}
	}
	for _, t := range h.ordered {
		for _, m := range t.newest.Load().members {
			m.record(r)
		}
	}
}

// record records a step of one cluster, from its first pick on.
func (m *member) record(r *history.Recorder) {
	name := history.Name{Target: m.target.label, Cluster: m.cluster}
	last := m.recorded
	m.recorded = recorded{seen: true, picks: m.picked()}
	if m.recorded.picks == 0 && !r.Known(name) {
		return
	}
	c := r.Begin(name, last.picks == 0)
	defer r.End(c)
	if !last.seen { // the cluster may have been removed and be back
		c.Restart()
	}
	if m.ownSeries {
		m.picks.each(func(of result, n uint64) { c.Count(history.Series{Kind: history.Picks, Name: string(of)}, n) })
	} else {
		c.Count(history.Series{Kind: history.Picks, Name: string(resultOK)}, m.recorded.picks)
	}
	priority := uint64(history.NoPriority)
	if p := m.target.channel.ClusterSummary(m.cluster).Priority; p >= 0 {
		priority = uint64(p)
	}
	c.Gauge(history.Series{Kind: history.Priority}, priority)
	cc := m.clusterConfig()
	aggregate := cc.Err == nil && cc.Cluster.Type == resource.ClusterAggregate
	for _, l := range m.leaves {
		l.record(c, aggregate)
	}
}

// picked is how many picks there were of the cluster; of one without metrics of
// its own, only the good ones.
func (m *member) picked() uint64 {
	if m.ownSeries {
		return m.picks.total()
	}
	return m.places.total()
}

// record records what a leaf drops, and how full its circuit breaker is.
func (l leaf) record(c *history.Cluster, aggregate bool) {
	name := ""
	if aggregate {
		name = l.Cluster.Name
	}
	c.Gauge(history.Series{Kind: history.InFlight, Leaf: name}, uint64(max(0, l.counters.Breaker.InFlight())))
	c.Gauge(history.Series{Kind: history.Limit, Leaf: name}, uint64(l.Cluster.MaxRequests))
	if l.Assignment == nil || len(l.Assignment.Drops) == 0 {
		return
	}
	counts := l.counters.Drops()
	for i, d := range l.Assignment.Drops {
		if !slices.ContainsFunc(l.Assignment.Drops[:i], func(o resource.Drop) bool { return o.Category == d.Category }) {
			c.Count(history.Series{Kind: history.Drops, Leaf: name, Name: d.Category}, counts[d.Category])
		}
	}
}
