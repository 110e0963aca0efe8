package history

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

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
