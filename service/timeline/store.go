package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// The steps of the two resolutions, and how long samples of each are kept.
const (
	Fine       = time.Second
	Coarse     = 10 * time.Second
	FineSpan   = 10 * time.Minute
	CoarseSpan = 6 * time.Hour
)

const (
	// offset is when in its second a fine step ends.
	offset = 500 * time.Millisecond
	// maxLate is how many steps a recorder that is late may stand for: after more,
	// there is a gap.
	maxLate = 10
)

// Store keeps the timeline of all clusters.
type Store struct {
	limit int // fixed after build

	mu       sync.Mutex // guards what follows
	clusters map[Name]*Cluster
	step     int64 // the last that was recorded
	used     int
	evicted  uint64
}

// NewStore returns a Store that uses at most limit bytes.
func NewStore(limit int) *Store {
	return &Store{limit: limit, clusters: make(map[Name]*Cluster)}
}

// Usage is how much memory a Store uses.
type Usage struct {
	// Bytes is at most the limit after each step.
	Bytes int
	// Evicted counts the bytes of samples that were evicted before their time.
	Evicted  uint64
	Clusters int
}

// Usage returns how much memory the store uses.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Bytes: s.used, Evicted: s.evicted, Clusters: len(s.clusters)}
}

// Next returns when the step after a time ends: when Record should be called.
func Next(now time.Time) time.Time {
	end := now.Truncate(Fine).Add(offset)
	if !end.After(now) {
		end = end.Add(Fine)
	}
	return end
}

// Record records one step of all clusters. all is called with a Recorder, and must
// not keep it. After a late call, the step stands for the missed ones, up to 10 s. If the
// clock is set back by more than that, the store removes everything.
func (s *Store) Record(now time.Time, all func(*Recorder)) {
	step := now.Add(-offset).Unix()
	s.mu.Lock()
	defer s.mu.Unlock()
	if step < s.step-maxLate {
		clear(s.clusters)
		s.used, s.step = 0, 0
	}
	if step <= s.step {
		return // counters go on growing until the next step
	}
	late := step - s.step
	if late > maxLate {
		late = 1
	}
	all(&Recorder{store: s, step: step, late: late})
	s.step = step
	if step%maintenance == 0 {
		s.expire()
	}
	s.evict()
}

// maintenance is after how many steps the store looks for what has expired.
const maintenance = 60

// expire removes old samples of clusters that are gone, and clusters without activity for as
// long as samples are kept.
func (s *Store) expire() {
	for name, c := range s.clusters {
		if c.recorded < s.step {
			c.flush()
			c.fine.expire(s.step - fineSteps)
			c.coarse.expire(s.step/finePerCoarse - coarseSteps)
			s.count(c)
		}
		if c.active < s.step-coarseSteps*finePerCoarse {
			s.remove(name, c)
		}
	}
}

// count brings the sum of bytes up to date with a cluster.
func (s *Store) count(c *Cluster) {
	bytes := c.bytes()
	s.used += bytes - c.counted
	c.counted = bytes
}

func (s *Store) remove(name Name, c *Cluster) {
	s.used -= c.counted
	delete(s.clusters, name)
}

// evict frees memory until the store is a sixteenth below its limit, so that it does not
// sort all clusters each second: first the oldest coarse samples of the least active
// clusters, then the least active clusters as a whole.
func (s *Store) evict() {
	if s.used <= s.limit {
		return
	}
	order := slices.SortedFunc(maps.Values(s.clusters), func(a, b *Cluster) int {
		return cmp.Or(cmp.Compare(a.activity, b.activity),
			strings.Compare(a.name.Cluster, b.name.Cluster), strings.Compare(a.name.Target, b.name.Target))
	})
	enough := s.limit - s.limit/16
	for _, c := range order {
		s.shrink(c, &c.coarse, enough)
	}
	for _, c := range order {
		s.shrink(c, &c.fine, enough)
		if s.used > enough {
			s.evicted += uint64(c.counted)
			s.remove(c.name, c)
		}
	}
}

// shrink evicts the oldest chunks of a track until the store uses at most enough bytes.
func (s *Store) shrink(c *Cluster, t *track, enough int) {
	for s.used > enough && len(t.sealed) > 0 {
		s.evicted += uint64(t.drop(1))
		s.count(c)
	}
}

// Recorder records one step.
type Recorder struct {
	store      *Store
	step, late int64
}

// Known reports whether the store has a cluster.
func (r *Recorder) Known(name Name) bool { return r.store.clusters[name] != nil }

// Begin begins the recording of one cluster's step, which End ends. fresh is true if the
// Picks of a new cluster began at zero within this step.
func (r *Recorder) Begin(name Name, fresh bool) *Cluster {
	c := r.store.clusters[name]
	if c == nil {
		c = newCluster(name)
		c.fresh, c.active = fresh, r.step
		r.store.clusters[name] = c
	}
	clear(c.now)
	return c
}

// End ends what Begin began.
func (r *Recorder) End(c *Cluster) {
	c.end(r.step, r.late)
	r.store.count(c)
}

// Samples are those of one cluster at one resolution, in order of time. Steps without
// data are missing.
type Samples struct {
	Step   time.Duration
	Ends   []time.Time // of the steps
	Series []Series
	Values [][]uint64 // of the steps, by series
}

// Read returns the coarse or fine samples of a cluster whose steps ended after a time. ok
// is false if the store does not have the cluster.
func (s *Store) Read(name Name, coarse bool, since time.Time) (out Samples, ok bool) {
	s.mu.Lock()
	c := s.clusters[name]
	if c == nil {
		s.mu.Unlock()
		return out, false
	}
	out.Step, out.Series, out.Values = Fine, slices.Clone(c.series), make([][]uint64, len(c.series))
	t, per := &c.fine, int64(1)
	if coarse {
		out.Step, t, per = Coarse, &c.coarse, finePerCoarse
	}
	from := max(since.Add(-offset).Unix()/per, s.step/per-t.keep+1)
	chunks := t.chunks(from)
	s.mu.Unlock()
	for _, c := range chunks {
		_ = c.decode(out.Series, func(step int64, values []uint64) { // it was encoded here
			end := time.Unix(step*per+per-1, int64(offset)).UTC()
			if step < from || !end.After(since) {
				return
			}
			out.Ends = append(out.Ends, end)
			for i, v := range values {
				out.Values[i] = append(out.Values[i], v)
			}
		})
	}
	return out, true
}
