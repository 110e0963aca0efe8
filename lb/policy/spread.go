package policy

import "math/bits"

// spread is the place of a pick among all picks of its batch, see [Call.Spread].
type spread struct {
	on           bool
	place, point uint64
}

// took records that the point, mapped to [0, of), has chosen [from, to).
func (s *spread) took(from, to, of uint64) {
	if s.on && of > 0 {
		at, rest := bits.Mul64(s.point, of)
		s.point, _ = bits.Div64(at-from, rest, to-from)
	}
}
