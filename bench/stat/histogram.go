package stat

import "math/bits"

// Histogram counts durations in nanoseconds, in buckets whose width is at most 1/128
// of the duration. Durations above 73 minutes count as that. The zero Histogram is
// empty.
type Histogram struct {
	counts  [buckets]uint64
	total   uint64
	minimum int64
	sum     float64
}

const (
	subBits = 7
	sub     = 1 << subBits // buckets for each power of two
	// highest is the power of two of the longest durations.
	highest = 42
	buckets = (highest - subBits + 1) * sub
)

// bucket returns the index of a duration.
func bucket(d int64) int {
	u := uint64(max(d, 0))
	power := bits.Len64(u) - 1
	switch {
	case power < subBits:
		return int(u)
	case power >= highest:
		return buckets - 1
	}
	shift := power - subBits
	return (shift+1)*sub + int(u>>shift) - sub
}

// middle returns the duration that a bucket represents.
func middle(i int) float64 {
	if i < sub {
		return float64(i)
	}
	shift := i/sub - 1
	low := uint64(i%sub+sub) << shift
	return float64(low) + float64(uint64(1)<<shift)/2
}

// Add counts a duration.
func (h *Histogram) Add(d int64) {
	h.counts[bucket(d)]++
	if h.total == 0 || d < h.minimum {
		h.minimum = d
	}
	h.total++
	h.sum += float64(d)
}

// Count returns the number of durations.
func (h *Histogram) Count() uint64 { return h.total }

// Min returns the shortest duration; 0 of an empty Histogram.
func (h *Histogram) Min() float64 { return float64(h.minimum) }

// Mean returns the mean; 0 of an empty Histogram.
func (h *Histogram) Mean() float64 {
	if h.total == 0 {
		return 0
	}
	return h.sum / float64(h.total)
}

// Quantile returns the duration below which the part q of all durations are; 0 of an
// empty Histogram.
func (h *Histogram) Quantile(q float64) float64 {
	if h.total == 0 {
		return 0
	}
	rank := uint64(q * float64(h.total))
	rank = min(rank, h.total-1)
	var seen uint64
	for i, n := range h.counts {
		if seen += n; seen > rank {
			return middle(i)
		}
	}
	return middle(buckets - 1)
}
