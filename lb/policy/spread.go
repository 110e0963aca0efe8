package policy

import "math/bits"

// spread is the place of a pick among all picks of its batch.
type spread struct {
	on           bool
	place, point uint64
}

// Spread makes the pick one of a batch whose places are evenly spaced in [0, 2^64): then every locality,
// endpoint and drop category gets its share of the batch within one pick (systematic sampling), while the
// chances of a single pick remain as they are. It holds until Reset.
//
// The place is the only random number of the pick: each weighted choice takes the part that the place is in,
// and the choices after it use the place within that part.
func (c *Call) Spread(place uint64) { c.spread = spread{on: true, place: place, point: place} }

// Even reports whether the pick is one of a batch with Spread.
func (c *Call) Even() bool { return c.spread.on }

// Took records that a number of Draw, mapped to [0, of), has chosen [from, to).
func (c *Call) Took(from, to, of uint64) {
	if c.spread.on && of > 0 {
		at, rest := bits.Mul64(c.spread.point, of)
		c.spread.point, _ = bits.Div64(at-from, rest, to-from)
	}
}

// TookRoute is Took for the routes of a target, which choose once for all pickers of a pick that waits.
func (c *Call) TookRoute(from, to, of uint64) {
	c.Took(from, to, of)
	c.spread.place = c.spread.point
}
