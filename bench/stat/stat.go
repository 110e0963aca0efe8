// Package stat has the statistics of a benchmark: medians, confidence intervals that
// assume no distribution, and histograms of latencies.
package stat

import (
	"math"
	"slices"
)

// Summary describes measurements by their median, and by an interval that contains the
// true median with a probability of at least 95 %.
type Summary struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	// N is the number of measurements. Fewer than 6 cannot give 95 %: the interval is
	// then from the smallest to the largest.
	N int `json:"n"`
}

// Summarize returns the summary of measurements, in any order. Those that are not numbers
// are ignored. The summary of none is zero.
func Summarize(values []float64) Summary {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(sorted)
	n := len(sorted)
	if n == 0 {
		return Summary{}
	}
	median := sorted[n/2]
	if n%2 == 0 {
		median = (sorted[n/2-1] + sorted[n/2]) / 2
	}
	skip := outside(n)
	return Summary{Median: median, Low: sorted[skip], High: sorted[n-1-skip], N: n}
}

// confidence is the probability with which an interval contains the median.
const confidence = 0.95

// outside returns how many of n ordered measurements the interval omits at each end.
// An interval that omits k misses the true median if at most k measurements are on one
// side of it. Their number has a binomial distribution with
// probability 1/2.
func outside(n int) int {
	logHalf := float64(n) * math.Log(0.5)
	logChoose, tail := 0.0, 0.0
	for k := range n / 2 {
		// tail is the probability that at most k measurements are below the median.
		tail += math.Exp(logChoose + logHalf)
		if 2*tail > 1-confidence {
			return max(k-1, 0)
		}
		logChoose += math.Log(float64(n-k)) - math.Log(float64(k+1))
	}
	return 0
}

// Ratios divides the measurements of two subjects round by round. The ratio to one that is
// not positive is not a number.
func Ratios(over, under []float64) []float64 {
	out := make([]float64, min(len(over), len(under)))
	for i := range out {
		out[i] = math.NaN()
		if under[i] > 0 {
			out[i] = over[i] / under[i]
		}
	}
	return out
}
