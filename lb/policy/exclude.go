package policy

import (
	"math/bits"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Rotation is the weighted set of endpoints that a picker chooses from, for
// [Call.Turn].
type Rotation interface {
	// Len returns the number of endpoints, at least 1.
	Len() int
	// Endpoint returns the endpoint at an index below Len.
	Endpoint(i int) *resource.Endpoint
	// Weight returns the endpoint's weight, above 0.
	Weight(i int) float64
	// At returns the index that 64 random bits choose by weight.
	At(draw uint64) int
}

// ErrAllExcluded rejects a pick that excludes every READY endpoint.
var ErrAllExcluded = NewRefusal(KindAllExcluded, "", "every READY endpoint is excluded")

// Turn returns i, the index in r of the endpoint whose turn it is. If c excludes that
// endpoint, it returns another one, chosen by [Call.Redraw]; -1 if c excludes all. It
// adds a step of policy to c's trace, with r's Detail if r has that method.
func (c *Call) Turn(policy string, r Rotation, i int, draw func() uint64) int {
	if len(c.Exclude) == 0 && c.Trace == nil {
		return i
	}
	return c.turn(policy, r, i, draw)
}

func (c *Call) turn(policy string, r Rotation, i int, draw func() uint64) int {
	step := EndpointStep{Policy: policy, Rotation: r.Len()}
	if e := r.Endpoint(i); c.Excludes(e) {
		step.InsteadOf = e
		i = c.Redraw(r, draw)
	}
	if c.Trace == nil {
		return i
	}
	step.Index, step.Excluded = i, c.CountExcluded(r)
	if i < 0 {
		step.InsteadOf = nil
	} else {
		step.Endpoint = r.Endpoint(i)
		if d, ok := r.(interface{ Detail(i int) Detail }); ok {
			step.Detail = d.Detail(i)
		}
	}
	c.Trace.Steps = append(c.Trace.Steps, step)
	return i
}

// maxRedraws limits the draws that may hit an excluded endpoint before Redraw looks at
// all endpoints.
const maxRedraws = 8

// Redraw chooses by weight an endpoint that c does not exclude, and returns its index;
// -1 if there is none. It allocates nothing. draw must be safe for concurrent use if
// picks are.
//
// The endpoint after the excluded one would get the share of both.
func (c *Call) Redraw(r Rotation, draw func() uint64) int {
	for range maxRedraws {
		if i := r.At(draw()); !c.Excludes(r.Endpoint(i)) {
			return i
		}
	}
	// One pass: each endpoint replaces the chosen one with the probability of its
	// weight in the sum so far.
	var sum float64
	chosen := -1
	for i := range r.Len() {
		if c.Excludes(r.Endpoint(i)) {
			continue
		}
		sum += r.Weight(i)
		if UnitOf(draw())*sum < r.Weight(i) {
			chosen = i
		}
	}
	return chosen
}

// CountExcluded returns how many endpoints of r are excluded.
func (c *Call) CountExcluded(r Rotation) int {
	n := 0
	for i := range r.Len() {
		if c.Excludes(r.Endpoint(i)) {
			n++
		}
	}
	return n
}

// UnitOf maps 64 random bits to [0, 1).
func UnitOf(draw uint64) float64 { return float64(draw>>11) / (1 << 53) }

// Seats are the READY endpoints that a picker chooses from. A picker embeds them as a
// [Rotation] with equal weights.
type Seats []*Upstream

// Seats returns the READY endpoints, in the config's order.
func (e *Endpoints[C, T]) Seats() Seats {
	seats := make(Seats, 0, e.Census.Ready)
	for _, m := range e.Order {
		if m.State() == connectivity.Ready {
			seats = append(seats, m.Upstream)
		}
	}
	return seats
}

// Own returns what the policy keeps for each of the endpoints that Seats returns.
func (e *Endpoints[C, T]) Own() []*T {
	own := make([]*T, 0, e.Census.Ready)
	for _, m := range e.Order {
		if m.State() == connectivity.Ready {
			own = append(own, &m.Own)
		}
	}
	return own
}

// Expect has the processor load the endpoint after the one at an index, which is next in
// turn. With many endpoints, the wait for memory is otherwise the longest part of a pick.
func (s Seats) Expect(after int) {
	if after++; after == len(s) {
		after = 0
	}
	prefetch(s[after])
}

// Len returns the number of endpoints.
func (s Seats) Len() int { return len(s) }

// Endpoint returns the endpoint at an index.
func (s Seats) Endpoint(i int) *resource.Endpoint { return s[i].Endpoint }

// Weight returns 1.
func (s Seats) Weight(int) float64 { return 1 }

// At returns the index that 64 random bits choose.
func (s Seats) At(draw uint64) int {
	i, _ := bits.Mul64(draw, uint64(len(s)))
	return int(i)
}
