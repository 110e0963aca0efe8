package observe

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/timeline"
	"github.com/lbd-dev/lbd/xds/resource"
)

// DefaultTimelineBytes is the default budget of the timeline of all clusters.
const DefaultTimelineBytes = 64 << 20

// Timeline records the counters of clusters every second.
type Timeline struct {
	// Fixed after build.
	ledger *ledger.Ledger
	store  *timeline.Store // nil if the timeline is disabled

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

// NewTimeline returns the timeline of the clusters of a ledger, with a budget of memory; 0
// is [DefaultTimelineBytes], and a negative number disables it.
func NewTimeline(l *ledger.Ledger, bytes int) *Timeline {
	h := &Timeline{ledger: l, stop: func() {}, last: make(map[*ledger.Record]recorded), spare: make(map[*ledger.Record]recorded)}
	if bytes >= 0 {
		h.store = timeline.NewStore(cmp.Or(bytes, DefaultTimelineBytes))
	}
	return h
}

// Start records every second until Close, and notes what fails.
func (h *Timeline) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	h.stop = cancel
	h.running.Go(func() { h.run(ctx) })
}

// Close ends the recording.
func (h *Timeline) Close() {
	h.stop()
	h.running.Wait()
}

func (h *Timeline) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(timeline.Next(time.Now()))):
			h.step(time.Now())
		}
	}
}

func (h *Timeline) step(now time.Time) {
	noteTrouble(h.ledger, now)
	if h.store == nil {
		return
	}
	h.store.Record(now, func(to *timeline.Recorder) {
		for t := range h.ledger.Hosted().All() {
			for _, m := range t.View().Clusters.All() {
				h.record(to, m)
			}
		}
	})
	h.last, h.spare = h.spare, h.last
	clear(h.spare)
}

// record records a step of one cluster, from its first pick on.
func (h *Timeline) record(to *timeline.Recorder, m *ledger.Cluster) {
	name := timeline.Name{Target: m.Target.Label, Cluster: m.Name}
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
	for of, n := range m.Results() {
		if n > 0 {
			c.Count(timeline.Series{Kind: timeline.Picks, Name: string(of)}, n)
		}
	}
	priority := uint64(timeline.NoPriority)
	if p := m.Target.Channel.ClusterSummary(m.Name).Priority; p >= 0 {
		priority = uint64(p)
	}
	c.Gauge(timeline.Series{Kind: timeline.Priority}, priority)
	cc := m.ClusterConfig()
	aggregate := cc.Err == nil && cc.Cluster.Type == resource.ClusterAggregate
	for _, l := range m.Leaves {
		recordLeaf(c, l, aggregate)
	}
}

// picked returns the total of a cluster's picks; without metrics of its own, of the
// successful ones.
func picked(m *ledger.Cluster) (sum uint64) {
	for _, n := range m.Results() {
		sum += n
	}
	return sum
}

func recordLeaf(c *timeline.Cluster, l ledger.Leaf, aggregate bool) {
	name := ""
	if aggregate {
		name = l.Cluster.Name
	}
	c.Gauge(timeline.Series{Kind: timeline.InFlight, Leaf: name}, uint64(max(0, l.Counters.Breaker.InFlight())))
	c.Gauge(timeline.Series{Kind: timeline.Limit, Leaf: name}, uint64(l.Cluster.MaxRequests))
	for _, d := range dropStates(l) { // a category that is listed twice has one counter
		c.Count(timeline.Series{Kind: timeline.Drops, Leaf: name, Name: d.Category}, d.Dropped)
	}
}

// ClusterTimeline is the timeline of a cluster, in steps.
type ClusterTimeline struct {
	Cluster string `json:"cluster"`
	// Target is the xds target in whose tree picks are counted; empty for the
	// cluster's own.
	Target string `json:"target"`
	Step   string `json:"step" enums:"1s,10s"`
	// Segments are in order of time. Between two of them, the cluster did not exist or
	// lbd did not run.
	Segments []TimelineSegment `json:"segments"`
} // @name ClusterHistory

// TimelineSegment is a time without a gap. Each list has one number for each step.
type TimelineSegment struct {
	// End of the first step.
	Start time.Time `json:"start"`
	// Priority is the priority in use at the end of a 1 s sample, and the highest
	// number during a 10 s sample; -1 if no priority was in use; in 10 s samples, -1 wins over
	// any priority.
	Priority []int `json:"priority"`
	// Picks are those of each step, by result: ok, or the code of the refusal.
	Picks map[string][]uint64 `json:"picks"`
	// Drops are counted for the whole process, and those of an AGGREGATE for each leaf.
	Drops []DropTimeline `json:"drops"`
	// Breakers are counted like drops.
	Breakers []BreakerTimeline `json:"breakers"`
} // @name HistorySegment

// DropTimeline is how many picks a category dropped in each step.
type DropTimeline struct {
	// Leaf is absent for a cluster that is no AGGREGATE.
	Leaf     string   `json:"leaf,omitempty"`
	Category string   `json:"category"`
	Dropped  []uint64 `json:"dropped"`
} // @name DropHistory

// BreakerTimeline is how full a circuit breaker was.
type BreakerTimeline struct {
	// Leaf is absent for a cluster that is no AGGREGATE.
	Leaf string `json:"leaf,omitempty"`
	// InFlight and MaxRequests are as they were at the end of a step of 1s, and the
	// largest within one of 10s.
	InFlight    []uint64 `json:"in_flight"`
	MaxRequests []uint64 `json:"max_requests"`
} // @name BreakerHistory

// TimelineRequest asks for the timeline of a cluster.
type TimelineRequest struct {
	Cluster string
	// Target is as in [State.Cluster].
	Target string
	// Since leaves out steps that ended before; zero is all.
	Since time.Time
	// Step is timeline.Fine or timeline.Coarse; zero is the finest that goes back to
	// Since.
	Step time.Duration
}

// Of returns the timeline of a cluster. A removed cluster keeps its timeline until it is
// evicted; a cluster without picks has none. It fails with UnknownCluster and
// UnknownTarget.
func (h *Timeline) Of(r TimelineRequest) (*ClusterTimeline, error) {
	coarse := r.Step == timeline.Coarse || r.Step == 0 && time.Since(r.Since) > timeline.FineSpan
	name := timeline.Name{Cluster: r.Cluster}
	m, err := h.ledger.Find(r.Cluster, r.Target)
	if err == nil {
		name.Target = m.Target.Label
	} else if r.Target != "" {
		if name.Target, _ = ledger.TargetName(r.Target); name.Target == "" {
			return nil, err
		}
	}
	out := &ClusterTimeline{Cluster: r.Cluster, Target: name.Target, Step: timeline.Fine.String(), Segments: []TimelineSegment{}}
	if coarse {
		out.Step = timeline.Coarse.String()
	}
	if h.store == nil {
		return out, err
	}
	samples, known := h.store.Read(name, coarse, r.Since)
	if !known {
		return out, err
	}
	first := 0
	for i, end := range samples.Ends {
		if i == len(samples.Ends)-1 || samples.Ends[i+1].Sub(end) > samples.Step {
			out.Segments = append(out.Segments, segmentOf(samples, first, i+1))
			first = i + 1
		}
	}
	return out, nil
}

// segmentOf returns the samples from first up to next, exclusive.
func segmentOf(samples timeline.Samples, first, next int) TimelineSegment {
	out := TimelineSegment{
		Start: samples.Ends[first], Priority: make([]int, next-first),
		Picks: map[string][]uint64{}, Drops: []DropTimeline{}, Breakers: []BreakerTimeline{},
	}
	for i, s := range samples.Series {
		list := samples.Values[i][first:next]
		switch s.Kind {
		case timeline.Picks:
			if s.Name == string(ledger.OK) || slices.Max(list) > 0 {
				out.Picks[s.Name] = list
			}
		case timeline.Drops:
			out.Drops = append(out.Drops, DropTimeline{Leaf: s.Leaf, Category: s.Name, Dropped: list})
		case timeline.Priority:
			for j, v := range list {
				if out.Priority[j] = int(v); v == timeline.NoPriority {
					out.Priority[j] = -1
				}
			}
		case timeline.InFlight, timeline.Limit:
			at := slices.IndexFunc(out.Breakers, func(b BreakerTimeline) bool { return b.Leaf == s.Leaf })
			if at < 0 {
				at = len(out.Breakers)
				none := make([]uint64, len(list))
				out.Breakers = append(out.Breakers, BreakerTimeline{Leaf: s.Leaf, InFlight: none, MaxRequests: none})
			}
			if s.Kind == timeline.InFlight {
				out.Breakers[at].InFlight = list
			} else {
				out.Breakers[at].MaxRequests = list
			}
		}
	}
	return out
}

// Within is that of [ClusterSummary].
func (h *ClusterTimeline) Within(s *ledger.Scope) *ClusterTimeline {
	if s.Target(h.Target) {
		return h
	}
	out := *h
	out.Target = ""
	return &out
}

// Recent is what happened to the picks of a cluster in the last minutes.
type Recent struct {
	// Over is the time that the rest is about; 0 if nothing is known.
	Over time.Duration
	// Picks is how many there were, with any result, in all targets.
	Picks uint64
	// InFlight is the largest number of requests in flight, by leaf; an empty name for a cluster that is no
	// AGGREGATE.
	InFlight map[string]uint64
}

// Recent returns what happened to the picks of a cluster in the last minutes, at most
// [timeline.FineSpan].
func (h *Timeline) Recent(cluster string, span time.Duration) Recent {
	out := Recent{InFlight: map[string]uint64{}}
	if h.store == nil {
		return out
	}
	now := time.Now()
	for t := range h.ledger.Hosted().All() {
		if t.View().Clusters.Get(cluster) == nil {
			continue
		}
		samples, ok := h.store.Read(timeline.Name{Target: t.Label, Cluster: cluster}, false, now.Add(-span))
		if !ok || len(samples.Ends) == 0 {
			continue
		}
		out.Over = max(out.Over, samples.Ends[len(samples.Ends)-1].Sub(samples.Ends[0])+samples.Step)
		for i, s := range samples.Series {
			for _, n := range samples.Values[i] {
				switch s.Kind { //nolint:exhaustive // the others are not asked for
				case timeline.Picks:
					out.Picks += n
				case timeline.InFlight:
					out.InFlight[s.Leaf] = max(out.InFlight[s.Leaf], n)
				}
			}
		}
	}
	return out
}
