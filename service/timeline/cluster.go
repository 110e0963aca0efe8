package timeline

import (
	"slices"
)

const (
	// fineSteps and coarseSteps are how many samples are kept.
	fineSteps   = int64(FineSpan / Fine)
	coarseSteps = int64(CoarseSpan / Coarse)
	// finePerCoarse is how many fine steps make a coarse one.
	finePerCoarse = int64(Coarse / Fine)
	// MaxSeries is the maximum number of series of a cluster; what else it counts
	// is not kept.
	MaxSeries = 128
	// clusterOverhead and seriesOverhead are the bytes of a cluster and of each of its
	// series, without names and samples.
	clusterOverhead = 640
	seriesOverhead  = 128
)

// Name identifies a cluster in the tree of a target; Target is empty for the
// cluster's own tree.
type Name struct{ Target, Cluster string }

// Cluster is what is kept of one cluster. Its methods may be called only between
// [Recorder.Begin] and [Recorder.End].
type Cluster struct {
	name   Name
	series []Series
	// last are the counters' values, and now the values of the step that is being
	// recorded: the growth of counters. Both are by series.
	last, now []uint64
	known     []bool // by series: whether last is
	fresh     bool   // Picks began at zero within the first step

	fine, coarse track
	// sums are those of the fine steps of the coarse step.
	sums    []uint64
	pending int64 // the coarse step of sums, or -1

	activity float64 // picks, the older the less
	recorded int64   // the last step that was recorded
	active   int64   // the last step in which something happened
	fixed    int     // bytes beside those of the tracks
	counted  int     // bytes that are in the store's sum
}

func newCluster(name Name) *Cluster {
	return &Cluster{
		name: name, pending: -1, fixed: clusterOverhead + len(name.Target) + len(name.Cluster),
		fine: track{keep: fineSteps}, coarse: track{keep: coarseSteps},
	}
}

func (c *Cluster) bytes() int { return c.fixed + c.fine.bytes + c.coarse.bytes }

// Restart is called when the counters of Picks begin at zero again.
func (c *Cluster) Restart() {
	for i, s := range c.series {
		if s.Kind == Picks {
			c.last[i] = 0
		}
	}
}

// Count records a counter's value, whose growth since the last step belongs to this step.
// A smaller value is ignored for Picks; Drops were reset to zero.
func (c *Cluster) Count(s Series, value uint64) {
	i := c.index(s)
	if i < 0 {
		return
	}
	switch before := c.last[i]; {
	case !c.known[i]: // its growth in this step is unknown
	case value >= before:
		c.now[i] += value - before
	case s.Kind == Drops:
		c.now[i] += value
	}
	c.last[i], c.known[i] = value, true
}

// Gauge records a gauge's value.
func (c *Cluster) Gauge(s Series, value uint64) {
	if i := c.index(s); i >= 0 {
		c.now[i] = value
	}
}

// index returns the index of a series, which is new if need be, or -1.
func (c *Cluster) index(s Series) int {
	if i := slices.Index(c.series, s); i >= 0 {
		return i
	}
	if len(c.series) == MaxSeries {
		return -1
	}
	c.series = append(c.series, s)
	c.last, c.now, c.sums = append(c.last, 0), append(c.now, 0), append(c.sums, 0)
	// A result that occurs for the first time counts from zero. Drops are shared with
	// other targets, and may have been counted before.
	c.known = append(c.known, s.Kind == Picks && (c.recorded > 0 || c.fresh))
	c.fixed += seriesOverhead + len(s.Leaf) + len(s.Name)
	return len(c.series) - 1
}

// end ends the recording of a step, the last of n steps if the recorder was late. The
// counts are distributed evenly over them.
func (c *Cluster) end(step, n int64) {
	picked := uint64(0)
	for i, s := range c.series {
		if s.Kind == Picks {
			picked += c.now[i]
		}
		if c.now[i] > 0 && (!s.Kind.isGauge() || s.Kind == InFlight) {
			c.active = step
		}
	}
	c.activity = c.activity*decay + float64(picked)
	if c.recorded != step-n { // gap: the time of these counts is unknown
		n = 1
	}
	for ; n > 0; n-- {
		values := c.now
		if n > 1 {
			values = c.part(n)
		}
		c.fine.add(step-n+1, c.series, values)
		c.sum(step-n+1, values)
	}
	c.recorded = step
}

// decay is what activity is multiplied with each second.
const decay = 1 - 1.0/600

func (c *Cluster) part(n int64) []uint64 {
	out := slices.Clone(c.now)
	for i, s := range c.series {
		if !s.Kind.isGauge() {
			out[i] /= uint64(n)
			c.now[i] -= out[i]
		}
	}
	return out
}

// sum adds a fine sample to its coarse step, and ends the one before.
func (c *Cluster) sum(step int64, values []uint64) {
	coarse := step / finePerCoarse
	if c.pending >= 0 && c.pending != coarse {
		c.flush()
	}
	c.pending = coarse
	for i, s := range c.series {
		if s.Kind.isGauge() {
			c.sums[i] = max(c.sums[i], values[i])
		} else {
			c.sums[i] += values[i]
		}
	}
	if step%finePerCoarse == finePerCoarse-1 {
		c.flush()
	}
}

func (c *Cluster) flush() {
	if c.pending < 0 {
		return
	}
	c.coarse.add(c.pending, c.series, c.sums)
	clear(c.sums)
	c.pending = -1
}

// Kind is what a series measures.
type Kind uint8

// The kinds of series. Counters are stored as their growth in each step, gauges
// as the largest value in each step.
const (
	// Picks counts the picks of one result, which is the series' Name.
	Picks Kind = iota
	// Drops counts the drops of one category of one leaf.
	Drops
	// Priority is the priority in use, or NoPriority: a gauge.
	Priority
	// InFlight is the number of requests in flight of one leaf: a gauge.
	InFlight
	// Limit is the largest number of requests in flight that is allowed: a gauge.
	Limit
)

// NoPriority is the value of a Priority series while no priority is in use. It is
// larger than any priority, so that a coarse sample that includes such a moment
// shows it.
const NoPriority = 1 << 16

func (k Kind) isGauge() bool { return k >= Priority }

// Series identifies one series of a cluster.
type Series struct {
	Kind Kind
	// Leaf is the leaf of an aggregate that Drops, InFlight and Limit belong to;
	// empty for the cluster itself.
	Leaf string
	// Name is the result of Picks and the category of Drops.
	Name string
}
