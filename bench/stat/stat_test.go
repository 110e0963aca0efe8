package stat_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lbd-dev/lbd/bench/stat"
)

func TestSummarize(t *testing.T) {
	ten := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	for _, test := range []struct {
		name   string
		values []float64
		want   stat.Summary
	}{
		{"one", []float64{3}, stat.Summary{Median: 3, Low: 3, High: 3, N: 1}},
		{"two", []float64{4, 2}, stat.Summary{Median: 3, Low: 2, High: 4, N: 2}},
		{"five: too few for 95 %", []float64{5, 4, 3, 2, 1}, stat.Summary{Median: 3, Low: 1, High: 5, N: 5}},
		// From tables of the sign test: 6 measurements have 96.9 % between the ends, 10
		// have 97.9 % between the 2nd and the 9th.
		{"six", []float64{1, 2, 3, 4, 5, 6}, stat.Summary{Median: 3.5, Low: 1, High: 6, N: 6}},
		{"ten", ten, stat.Summary{Median: 5.5, Low: 2, High: 9, N: 10}},
		{"not a number", []float64{1, math.NaN(), 3}, stat.Summary{Median: 2, Low: 1, High: 3, N: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := stat.Summarize(test.values); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	if s := stat.Summarize(nil); s != (stat.Summary{}) {
		t.Errorf("the summary of nothing is %+v", s)
	}
}

// TestIntervalContainsMedian draws many samples of a skewed distribution: at least 95 % of
// the intervals contain the true median.
func TestIntervalContainsMedian(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	const trials = 4000
	for _, n := range []int{6, 9, 15, 30} {
		inside := 0
		for range trials {
			values := make([]float64, n)
			for i := range values {
				values[i] = draw.ExpFloat64()
			}
			if s := stat.Summarize(values); s.Low <= math.Ln2 && math.Ln2 <= s.High {
				inside++
			}
		}
		if part := float64(inside) / trials; part < 0.945 {
			t.Errorf("%d measurements: %.3f of the intervals contain the median", n, part)
		}
	}
}

func TestRatios(t *testing.T) {
	got := stat.Ratios([]float64{2, 9, 5, 7}, []float64{1, 3, 0})
	if len(got) != 3 || got[0] != 2 || got[1] != 3 || !math.IsNaN(got[2]) {
		t.Errorf("got %v, want 2, 3 and no number", got)
	}
}

func TestHistogram(t *testing.T) {
	var h stat.Histogram
	if h.Quantile(0.5) != 0 || h.Mean() != 0 || h.Count() != 0 {
		t.Error("an empty histogram has durations")
	}
	draw := rand.New(rand.NewPCG(3, 4))
	values := make([]int64, 100_000)
	for i := range values {
		values[i] = int64(math.Exp(draw.NormFloat64()*3 + 10)) // from nanoseconds to seconds
		h.Add(values[i])
	}
	slices.Sort(values)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999, 1} {
		exact := float64(values[min(int(q*float64(len(values))), len(values)-1)])
		if got := h.Quantile(q); math.Abs(got-exact) > exact/128+1 {
			t.Errorf("quantile %v is %v, want %v", q, got, exact)
		}
	}
	if h.Min() != float64(values[0]) || h.Count() != uint64(len(values)) {
		t.Errorf("minimum %v of %d, want %d of %d", h.Min(), h.Count(), values[0], len(values))
	}
}

func TestHistogramBounds(t *testing.T) {
	var h stat.Histogram
	h.Add(-5)
	h.Add(math.MaxInt64)
	if got := h.Quantile(0); got != 0 {
		t.Errorf("a negative duration counts as %v, want 0", got)
	}
	if got := h.Quantile(1); got < 4e12 {
		t.Errorf("the longest duration counts as %v", got)
	}
}
