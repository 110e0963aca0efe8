package timeline

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		play   func(f *fixture)
		series Series
		coarse bool
		want   string
	}{
		{"picks of each second", func(f *fixture) {
			f.picked(1, 3)
			f.step(2)
			f.picked(3, 5)
		}, ok, false, "1:3 2:0 3:5"},
		{"a result that occurs later", func(f *fixture) {
			f.picked(1, 3)
			f.count("a", failed, 2)
			f.step(2)
		}, failed, false, "1:0 2:2"},
		{"drops before the first look are not of the first step", func(f *fixture) {
			f.count("a", throttle, 100)
			f.step(1)
			f.count("a", throttle, 2)
			f.step(2)
		}, throttle, false, "1:0 2:2"},
		{"gauges", func(f *fixture) {
			f.count("a", ok, 1)
			for i, v := range []uint64{7, 7, 0, 0, 9} {
				f.gauge("a", inFlight, v)
				f.step(i + 1)
			}
		}, inFlight, false, "1:7 2:7 3:0 4:0 5:9"},
		{"coarse picks are sums", func(f *fixture) {
			for i := range 20 {
				f.picked(i, uint64(i))
			}
		}, ok, true, "9:45 19:145"},
		{"a coarse gauge is the largest", func(f *fixture) {
			for i := range 20 {
				f.count("a", ok, 1)
				f.gauge("a", priority, 0)
				if i == 4 {
					f.gauge("a", priority, NoPriority)
				}
				f.step(i)
			}
		}, priority, true, "9:65536 19:0"},
		{"twice in one second", func(f *fixture) {
			f.picked(1, 3)
			f.picked(1, 2)
			f.step(2)
		}, ok, false, "1:3 2:2"},
		{"late: spread over what was missed", func(f *fixture) {
			f.picked(1, 3)
			f.picked(4, 10)
			f.step(5)
		}, ok, false, "1:3 2:3 3:3 4:4 5:0"},
		{"very late: a gap", func(f *fixture) {
			f.picked(1, 3)
			f.picked(20, 10)
		}, ok, false, "1:3 20:10"},
		{"removed and back", func(f *fixture) {
			f.picked(1, 3)
			f.remove("a")
			f.step(2)
			f.step(3)
			f.picked(4, 2)
		}, ok, false, "1:3 4:2"},
		{"removed, and back within a step with more picks than before", func(f *fixture) {
			f.picked(1, 3)
			f.remove("a")
			f.picked(2, 7)
		}, ok, false, "1:3 2:7"},
		{"back while the recorder is late: nothing is spread over the gap", func(f *fixture) {
			f.picked(1, 3)
			f.remove("a")
			f.step(2)
			f.picked(5, 9)
		}, ok, false, "1:3 5:9"},
		{"picks that shrink did not grow", func(f *fixture) {
			f.picked(1, 9)
			f.counters["a"][ok] = 4
			f.step(2)
			f.picked(3, 1)
		}, ok, false, "1:9 2:0 3:1"},
		{"drops that shrink began again at zero", func(f *fixture) {
			f.count("a", throttle, 9)
			f.step(1)
			f.counters["a"][throttle] = 4
			f.step(2)
		}, throttle, false, "1:0 2:4"},
		{"the clock is set back a little", func(f *fixture) {
			f.picked(10, 3)
			f.picked(8, 2)
			f.step(11)
		}, ok, false, "10:3 11:2"},
		{"the clock is set back by an hour", func(f *fixture) {
			f.picked(10, 3)
			f.picked(-3600, 2)
			f.picked(-3599, 1)
		}, ok, false, "-3600:0 -3599:1"},
	} {
		f := newFixture(1 << 20)
		c.play(f)
		if got := f.read("a", c.coarse, c.series); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if f.sum() != f.used {
			t.Errorf("%s: %d bytes are counted, and %d used", c.name, f.used, f.sum())
		}
	}
}

// Samples are kept for 10 minutes and for 6 hours; a little more is kept than is
// read, since chunks expire as a whole.
func TestRetention(t *testing.T) {
	f := newFixture(1 << 20)
	const end = 8 * 3600
	for i := 1; i <= end; i++ {
		f.picked(i, uint64(i%7))
	}
	if first, last, n := f.span("a", false); first != end-599 || last != end || n != 600 {
		t.Errorf("fine: from %d to %d, %d samples", first, last, n)
	}
	if first, last, n := f.span("a", true); last != end-1 || n != 2159 && n != 2160 || first < end-6*3600 {
		t.Errorf("coarse: from %d to %d, %d samples", first, last, n)
	}
	if used := f.Usage(); used.Bytes != f.sum() || used.Evicted != 0 {
		t.Errorf("%+v, and %d bytes in fact", used, f.sum())
	}
	samples, _ := f.Read(Name{Cluster: "a"}, false, at(end-3))
	if len(samples.Ends) != 3 {
		t.Errorf("since three seconds ago: %d samples", len(samples.Ends))
	}
}

// What nobody picks from costs little, and nothing after six hours.
func TestQuietClusterIsForgotten(t *testing.T) {
	f := newFixture(1 << 20)
	f.count("quiet", ok, 1)
	f.step(1)
	for i := 2; i < 3600; i++ {
		f.step(i)
	}
	if got := f.Usage().Bytes; got > 3000 {
		t.Errorf("%d bytes after a quiet hour", got)
	}
	for i := 3600; i < 6*3600+120; i++ {
		f.step(i)
		if f.counters["quiet"] != nil && f.Usage().Clusters == 0 {
			delete(f.counters, "quiet") // a recorder does not begin a cluster without picks
		}
	}
	if got := f.Usage(); got.Bytes != 0 || got.Clusters != 0 {
		t.Errorf("after six quiet hours: %+v", got)
	}
}

// A cluster that was removed is forgotten, too.
func TestRemovedClusterExpires(t *testing.T) {
	f := newFixture(1 << 20)
	for i := 1; i <= 15; i++ {
		f.count("gone", ok, 1)
		f.step(i)
	}
	f.remove("gone")
	for i := 16; i < 1000; i++ {
		f.step(i)
	}
	if _, _, n := f.span("gone", false); n != 0 {
		t.Errorf("%d fine samples are left", n)
	}
	if got := f.read("gone", true, ok); got != "9:9 19:6" {
		t.Errorf("coarse: %s", got)
	}
	for i := 1000; i < 7*3600; i++ {
		f.step(i)
	}
	if got := f.Usage(); got.Bytes != 0 || got.Clusters != 0 {
		t.Errorf("%+v", got)
	}
}

// When the budget is reached, the coarse samples of the least active clusters go
// first, and the fine ones last.
func TestEviction(t *testing.T) {
	const clusters = 40
	f := newFixture(280_000)
	name := func(i int) string { return fmt.Sprintf("c%02d", i) }
	for step := 1; step <= 2*3600; step++ {
		for i := range clusters {
			f.count(name(i), ok, uint64(100*(i+1)+step%50))
		}
		f.step(step)
		if f.used > f.limit {
			t.Fatalf("step %d: %d bytes of %d are used", step, f.used, f.limit)
		}
	}
	if f.sum() != f.used {
		t.Errorf("%d bytes are counted, and %d used", f.used, f.sum())
	}
	if f.Usage().Evicted == 0 {
		t.Fatal("nothing was evicted: the test is too small")
	}
	before := 0
	for i := range clusters {
		_, _, coarse := f.span(name(i), true)
		_, _, fine := f.span(name(i), false)
		if fine != 600 {
			t.Errorf("%s has %d fine samples while there are coarse ones", name(i), fine)
		}
		// A chunk has about 150 coarse samples.
		if coarse < before-150 {
			t.Errorf("%s has %d coarse samples, a less active one %d", name(i), coarse, before)
		}
		before = max(before, coarse)
	}
	_, _, least := f.span(name(0), true)
	_, _, most := f.span(name(clusters-1), true)
	if least >= most || most < 700 {
		t.Errorf("the least active has %d coarse samples, the most active %d", least, most)
	}
}

// A budget that is too small for the fine samples keeps those of the most active
// clusters; counters that go on while nothing is kept do not count later.
func TestEvictionOfClusters(t *testing.T) {
	const clusters = 100
	f := newFixture(60_000)
	name := func(i int) string { return fmt.Sprintf("c%02d", i) }
	for step := 1; step <= 900; step++ {
		for i := range clusters {
			f.count(name(i), ok, uint64(10*(i+1)))
		}
		f.step(step)
		if f.used > f.limit || f.used != f.sum() {
			t.Fatalf("step %d: %d bytes of %d are used, %d in fact", step, f.used, f.limit, f.sum())
		}
	}
	if _, kept := f.Read(Name{Cluster: name(0)}, false, time.Time{}); kept {
		t.Error("the least active cluster is kept")
	}
	if _, _, n := f.span(name(clusters-1), false); n != 600 {
		t.Errorf("the most active has %d fine samples", n)
	}
	for i := range clusters - 1 {
		f.remove(name(i))
	}
	f.count(name(0), ok, 10_000) // it had as many picks before
	f.seen[name(0)] = true
	f.step(901)
	f.count(name(0), ok, 3)
	f.step(902)
	if got := f.read(name(0), false, ok); got != "901:0 902:3" {
		t.Errorf("back after it was evicted: %s", got)
	}
}

func TestNext(t *testing.T) {
	for now, want := range map[time.Duration]time.Duration{
		0:                       500 * time.Millisecond,
		499 * time.Millisecond:  500 * time.Millisecond,
		500 * time.Millisecond:  1500 * time.Millisecond,
		1499 * time.Millisecond: 1500 * time.Millisecond,
	} {
		base := time.Unix(began, 0)
		if got := Next(base.Add(now)).Sub(base); got != want {
			t.Errorf("after %v comes %v, want %v", now, got, want)
		}
	}
}

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

// picked records a step in which cluster "a" had n picks.
func (f *fixture) picked(step int, n uint64) {
	f.count("a", ok, n)
	f.step(step)
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
	if i := slices.Index(samples.Series, s); i >= 0 {
		for j, end := range samples.Ends {
			out = append(out, fmt.Sprintf("%d:%d", end.Unix()-began, samples.Values[i][j]))
		}
	}
	return strings.Join(out, " ")
}

// span is the first and the last step that are kept of a cluster, and how many.
func (f *fixture) span(cluster string, coarse bool) (first, last, n int) {
	samples, _ := f.Read(Name{Cluster: cluster}, coarse, time.Time{})
	if n = len(samples.Ends); n == 0 {
		return 0, 0, 0
	}
	return int(samples.Ends[0].Unix() - began), int(samples.Ends[n-1].Unix() - began), n
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

// Whatever is added is read again: gaps, quiet steps, series that begin later.
func TestTrackKeepsWhatIsAdded(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		series := []Series{ok, priority}
		tr := &track{keep: coarseSteps}
		type sample struct {
			step   int64
			values []uint64
		}
		var want []sample
		values := make([]uint64, 2, 6)
		step := int64(draw.IntN(1000))
		for range draw.IntN(800) {
			if draw.IntN(20) == 0 {
				step += int64(draw.IntN(600))
			}
			if len(series) < 6 && draw.IntN(100) == 0 {
				series = append(series, Series{Kind: Kind(draw.IntN(5)), Name: string(rune('a' + len(series)))})
				values = append(values, 0)
			}
			quiet := draw.IntN(3) > 0
			for i, s := range series {
				switch {
				case !s.Kind.isGauge():
					values[i] = 0
					if !quiet {
						values[i] = draw.Uint64() >> draw.IntN(64)
					}
				case !quiet && draw.IntN(2) == 0:
					values[i] = uint64(draw.IntN(5))
				}
			}
			tr.add(step, series, values)
			want = append(want, sample{step, append([]uint64{}, values...)})
			step++
		}
		for i, s := range want {
			want[i].values = append(s.values, make([]uint64, len(series)-len(s.values))...)
		}
		oldest := step - 1 - tr.keep
		var got []sample
		for _, c := range tr.chunks(0) {
			if err := c.decode(series, func(step int64, values []uint64) { got = append(got, sample{step, append([]uint64{}, values...)}) }); err != nil {
				t.Fatal(err)
			}
		}
		for len(want) > 0 && want[0].step <= oldest && (len(got) == 0 || want[0].step < got[0].step) {
			want = want[1:]
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%d samples were added, %d are read", len(want), len(got))
		}
	}
}

func FuzzDecodeChunk(f *testing.F) {
	tr := &track{keep: fineSteps}
	series := []Series{ok, priority, throttle}
	for i := range int64(50) {
		tr.add(i+i/7, series, []uint64{uint64(i % 3), uint64(i / 20), uint64(i) << 40})
	}
	for _, c := range tr.chunks(0) {
		f.Add(c.data, c.steps, 3)
	}
	f.Fuzz(func(t *testing.T, data []byte, steps int64, n int) {
		c := chunk{first: 100, steps: steps, data: data}
		last, samples := int64(99), int64(0)
		err := c.decode(make([]Series, min(max(n, 0), MaxSeries)), func(step int64, _ []uint64) {
			if step <= last {
				t.Fatalf("step %d after %d", step, last)
			}
			last = step
			samples++
		})
		if err == nil && samples > max(steps, 0) {
			t.Fatalf("%d samples of %d steps", samples, steps)
		}
	})
}
