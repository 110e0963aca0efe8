package parity_test

import (
	"math"
	"testing"
)

// improbable is the probability below which a count is taken for a difference,
// and not for chance.
const improbable = 1e-9

// tail bounds the probability that a share of n draws is as far from p as
// count/n is, on its side: Chernoff's bound exp(-n·KL), which is exp(-G/2) of
// the G-test on two cells. It holds for every n and p, where χ² needs large
// counts.
func tail(count, n int, p float64) float64 {
	q := float64(count) / float64(n)
	return math.Exp(-float64(n) * (relative(q, p) + relative(1-q, 1-p)))
}

func relative(q, p float64) float64 {
	if q == 0 {
		return 0
	}
	return q * math.Log(q/p) // +Inf where p is 0: what cannot be was seen
}

// implausible reports whether one of several counts, of as many as cells, is
// improbable.
func implausible(count, n int, p float64, cells int) bool {
	return 2*float64(cells)*tail(count, n, p) < improbable
}

func TestTail(t *testing.T) {
	tests := []struct {
		count, n int
		p        float64
		want     float64 // of the bound
	}{
		{0, 10, 0.5, math.Pow(0.5, 10)},
		{10, 10, 0.1, math.Pow(0.1, 10)},
		{50, 100, 0.5, 1},
		{1, 10, 0, 0},
		{0, 10, 0, 1},
		{10, 10, 1, 1},
		{9, 10, 1, 0},
	}
	for _, tt := range tests {
		if got := tail(tt.count, tt.n, tt.p); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("%d of %d at %v: %v, want %v", tt.count, tt.n, tt.p, got, tt.want)
		}
	}
	// The exact tail of the binomial distribution is never above the bound.
	const n, p = 60, 0.3
	sum := 0.0
	for k := n; k > n*p; k-- {
		logs := float64(k)*math.Log(p) + float64(n-k)*math.Log(1-p)
		a, _ := math.Lgamma(n + 1)
		b, _ := math.Lgamma(float64(k) + 1)
		c, _ := math.Lgamma(float64(n-k) + 1)
		sum += math.Exp(logs + a - b - c)
		if bound := tail(k, n, p); sum > bound*(1+1e-9) {
			t.Errorf("P(at least %d of %d) is %v, above its bound %v", k, n, sum, bound)
		}
	}
	if !implausible(390, 1000, 0.5, 1) || implausible(440, 1000, 0.5, 1) {
		t.Error("7 standard deviations pass for chance, or 4 do not")
	}
}
