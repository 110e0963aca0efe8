package policy

import "github.com/lbd-dev/lbd/xds/resource"

// Rotation is the set of endpoints that a picker chooses from, each with its
// weight. A picker implements it so that [Call.Redraw] can choose for it.
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

// ErrAllExcluded refuses a pick that excludes every READY endpoint.
var ErrAllExcluded = NewRefusal(KindAllExcluded, "", "every READY endpoint is excluded")

// Turn returns i, the index in r of the endpoint whose turn it is. If c excludes
// that endpoint, it returns the index of another one, chosen by [Call.Redraw]; -1 if
// c excludes all of them. It adds the choice to c's trace as a step of policy, with
// the Detail of the choice if r has such a method.
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

// maxRedraws limits the draws that may hit an excluded endpoint before all
// endpoints are looked at, which costs a comparison of each endpoint with each
// excluded address.
const maxRedraws = 8

// Redraw chooses an endpoint that c does not exclude, by weight among those that
// remain, and returns its index; -1 if c excludes all of them. It allocates
// nothing. draw must be safe for concurrent use if picks are concurrent.
//
// The next endpoint in turn would not do in place of an excluded one: it would
// receive the whole share of its neighbor.
func (c *Call) Redraw(r Rotation, draw func() uint64) int {
	for range maxRedraws {
		if i := r.At(draw()); !c.Excludes(r.Endpoint(i)) {
			return i
		}
	}
	// One pass: each endpoint replaces the one chosen so far with the chance that
	// its weight has in the sum up to it.
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

// CountExcluded returns the number of endpoints of r that c excludes.
func (c *Call) CountExcluded(r Rotation) int {
	n := 0
	for i := range r.Len() {
		if c.Excludes(r.Endpoint(i)) {
			n++
		}
	}
	return n
}

// UnitOf maps 64 random bits to a number in [0, 1).
func UnitOf(draw uint64) float64 { return float64(draw>>11) / (1 << 53) }
