package history

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	ok       = Series{Kind: Picks, Name: "ok"}
	failed   = Series{Kind: Picks, Name: "no_ready_endpoint"}
	throttle = Series{Kind: Drops, Name: "throttle"}
	priority = Series{Kind: Priority}
	inFlight = Series{Kind: InFlight}
)

// began is the step before the first one of a test: a multiple of ten seconds.
const began = 1_000_000_000

// at is when a step of a test ends.
func at(step int) time.Time { return time.Unix(began+int64(step), int64(offset)) }

// counters are the cumulative counters of clusters, by name.
type counters map[string]map[Series]uint64

// fixture is a store with the counters that it is filled from.
type fixture struct {
	*Store

	counters counters
	gauges   counters
	seen     map[string]bool
}

func newFixture(limit int) *fixture {
	return &fixture{NewStore(limit), counters{}, counters{}, map[string]bool{}}
}

// count lets a counter of a cluster grow.
func (f *fixture) count(cluster string, s Series, n uint64) {
	if f.counters[cluster] == nil {
		f.counters[cluster] = map[Series]uint64{}
	}
	f.counters[cluster][s] += n
}

func (f *fixture) gauge(cluster string, s Series, v uint64) {
	if f.gauges[cluster] == nil {
		f.gauges[cluster] = map[Series]uint64{}
	}
	f.gauges[cluster][s] = v
}

// step records all clusters that have counters.
func (f *fixture) step(step int) {
	f.Record(at(step), func(r *Recorder) {
		for name, counts := range f.counters {
			c := r.Begin(Name{Cluster: name}, !f.seen[name])
			if !f.seen[name] {
				c.Restart()
			}
			f.seen[name] = true
			for s, v := range counts {
				c.Count(s, v)
			}
			for s, v := range f.gauges[name] {
				c.Gauge(s, v)
			}
			r.End(c)
		}
	})
}

// remove lets a cluster be gone; its counters begin at zero when it is back.
func (f *fixture) remove(cluster string) {
	delete(f.counters, cluster)
	delete(f.gauges, cluster)
	delete(f.seen, cluster)
}

// read has what is kept of a cluster: for each sample its step, and what one series
// has there.
func (f *fixture) read(cluster string, coarse bool, s Series) string {
	samples, _ := f.Read(Name{Cluster: cluster}, coarse, time.Time{})
	var out []string
	for _, sample := range samples.Samples {
		for i, other := range samples.Series {
			if other == s {
				out = append(out, fmt.Sprintf("%d:%d", sample.End.Unix()-began, sample.Values[i]))
			}
		}
	}
	return strings.Join(out, " ")
}

// span is the first and the last step that are kept of a cluster, and how many.
func (f *fixture) span(cluster string, coarse bool) (first, last, n int) {
	samples, _ := f.Read(Name{Cluster: cluster}, coarse, time.Time{})
	if n = len(samples.Samples); n == 0 {
		return 0, 0, 0
	}
	return int(samples.Samples[0].End.Unix() - began), int(samples.Samples[n-1].End.Unix() - began), n
}

// sum is what is really used.
func (f *fixture) sum() int {
	n := 0
	for _, c := range f.clusters {
		n += c.bytes()
		for _, t := range []*track{&c.fine, &c.coarse} {
			bytes := 0
			for _, k := range t.sealed {
				bytes += chunkOverhead + cap(k.data)
			}
			if t.open.steps > 0 {
				bytes += chunkOverhead + cap(t.open.data)
			}
			if bytes != t.bytes {
				panic(fmt.Sprintf("a track of %s counts %d bytes, and has %d", c.name.Cluster, t.bytes, bytes))
			}
		}
	}
	return n
}
