package roster

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	// maxSummaryBytes is the maximum size of an encoded Summary.
	maxSummaryBytes = 16 << 10
	// MaxFailing is how many failing endpoints a Summary lists.
	MaxFailing = 32
)

// Summary is what a replica publishes about itself now and then.
type Summary struct {
	// Index is the index of the last commit of the store that it has applied.
	Index uint64 `json:"index"`
	// BehindSeconds is the time since its contents were last known to be all that the store has.
	BehindSeconds float64 `json:"behind_seconds"`
	// PicksPerSecond is the rate of successful picks.
	PicksPerSecond float64 `json:"picks_per_second"`
	// Failing are endpoints to which it has no connection, in the order of [Failing.Compare].
	Failing []Failing `json:"failing,omitempty"`
	// More is the number of failing endpoints that are not listed.
	More int `json:"more,omitempty"`
}

// Failing is an endpoint that a replica cannot reach.
type Failing struct {
	Cluster string `json:"cluster"`
	Address string `json:"address"`
}

// Compare orders endpoints.
func (f Failing) Compare(other Failing) int {
	return cmp.Or(cmp.Compare(f.Cluster, other.Cluster), cmp.Compare(f.Address, other.Address))
}

// Bound sorts Failing, and moves what is too much to More.
func (s *Summary) Bound() {
	slices.SortFunc(s.Failing, Failing.Compare)
	s.Failing = slices.Compact(s.Failing)
	keep := s.Failing[:0]
	left := maxSummaryBytes - 256 // for the numbers
	for _, f := range s.Failing {
		left -= len(encode(f)) + 1
		if len(keep) == MaxFailing || left < 0 || !isText(f.Cluster) || !isText(f.Address) {
			s.More++
			continue
		}
		keep = append(keep, f)
	}
	s.Failing = keep
}

// Encode returns the bytes of a Summary, after Bound.
func (s Summary) Encode() []byte { return encode(s) }

// Differs reports whether others should know the newer of two summaries: rates that are nearly the same
// do not matter.
func (s Summary) Differs(newer Summary) bool {
	return s.Index != newer.Index || s.More != newer.More || !slices.Equal(s.Failing, newer.Failing) ||
		differ(s.PicksPerSecond, newer.PicksPerSecond, 0.1) || max(s.BehindSeconds, newer.BehindSeconds) > 10 && differ(s.BehindSeconds, newer.BehindSeconds, 0.5)
}

// differ reports whether two numbers differ by a part of the larger one.
func differ(a, b, part float64) bool { return math.Abs(a-b) > part*max(a, b) }

// DecodeSummary returns the Summary of bytes that [Summary.Encode] returned.
func DecodeSummary(b []byte) (Summary, error) {
	var s Summary
	if err := decode(b, maxSummaryBytes, &s); err != nil {
		return Summary{}, err
	}
	if s.BehindSeconds < 0 || s.PicksPerSecond < 0 || s.More < 0 {
		return Summary{}, errors.New("a number is negative")
	}
	if len(s.Failing) > MaxFailing {
		return Summary{}, fmt.Errorf("%d failing endpoints, more than %d", len(s.Failing), MaxFailing)
	}
	for i, f := range s.Failing {
		if !isText(f.Cluster) || !isText(f.Address) || i > 0 && s.Failing[i-1].Compare(f) >= 0 {
			return Summary{}, fmt.Errorf("failing endpoint %d is not valid, or not in order", i)
		}
	}
	return s, nil
}
