package weightedtarget

import (
	"math/bits"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// maxRedraws limits the draws that may hit an exhausted locality before the other
// weights are summed up.
const maxRedraws = 8

// exhausted is the set of localities whose endpoints a pick excludes. It is on the
// pick's stack.
type exhausted struct {
	set [(resource.MaxLocalities + 63) / 64]uint64
	n   int
}

func (e *exhausted) add(i int) {
	e.n++
	if i/64 < len(e.set) {
		e.set[i/64] |= 1 << (i % 64)
	}
}

func (e *exhausted) has(i int) bool { return i/64 < len(e.set) && e.set[i/64]&(1<<(i%64)) != 0 }

// redraw draws by weight a locality that is not exhausted; there must be one. draw is
// 0 if only one is left.
func (p *picker) redraw(done *exhausted) (draw uint64, i int) {
	if len(p.seats)-done.n > 1 {
		for range maxRedraws {
			draw = p.draw()
			if i = p.table.at(draw); !done.has(i) {
				return draw, i
			}
		}
		draw = p.draw()
	}
	var sum uint64
	for i := range p.candidates {
		if !done.has(i) {
			sum += uint64(p.candidates[i].Weight)
		}
	}
	at, _ := bits.Mul64(draw, sum)
	for i = range p.candidates {
		if done.has(i) {
			continue
		}
		weight := uint64(p.candidates[i].Weight)
		if at < weight {
			break
		}
		at -= weight
	}
	return draw, i
}

// remaining returns the candidates that are not exhausted, and the new index of the
// one at index.
func (p *picker) remaining(done *exhausted, index int) (candidates []policy.LocalityCandidate, at int) {
	for i, c := range p.candidates {
		if i == index {
			at = len(candidates)
		}
		if !done.has(i) {
			candidates = append(candidates, c)
		}
	}
	return candidates, at
}
