package weightedtarget

import (
	"errors"
	"math/bits"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every READY endpoint of the priority is excluded")

// picker draws one of its seats by weight.
type picker struct {
	policy.Failed // with the error of the first locality

	draw  func() uint64
	seats []balancer.Picker
	ends  []uint64 // the cumulative sums of the seats' weights
	// first has, for each of len(ends) equal parts of the draws, the first seat that a draw can choose.
	first []int
	// candidates are the seats' localities and weights, for explanations.
	candidates []policy.LocalityCandidate
}

func newPicker(in []*child, draw func() uint64) *picker {
	p := &picker{
		draw:       draw,
		seats:      make([]balancer.Picker, len(in)),
		ends:       make([]uint64, len(in)),
		first:      make([]int, len(in)),
		candidates: make([]policy.LocalityCandidate, len(in)),
	}
	var sum uint64
	for i, c := range in {
		p.seats[i] = c.State.Picker
		sum += uint64(c.Own.Weight)
		p.ends[i] = sum
		p.candidates[i] = policy.LocalityCandidate{Locality: c.Own.ID, Weight: c.Own.Weight}
		if p.Err == nil {
			p.Err = policy.FailureOf(c.State)
		}
	}
	i := 0
	for part := range p.first {
		for p.ends[i] <= uint64(part)*sum/uint64(len(in)) {
			i++
		}
		p.first[part] = i
	}
	return p
}

// at returns the seat that 64 random bits choose by weight. It compares with two ends
// on average.
func (p *picker) at(draw uint64) int {
	at, _ := bits.Mul64(draw, p.ends[len(p.ends)-1])
	part, _ := bits.Mul64(draw, uint64(len(p.first)))
	i := p.first[part]
	for p.ends[i] <= at {
		i++
	}
	return i
}

// Pick lets the drawn locality pick. If all its endpoints are excluded, another is
// drawn.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	i := 0
	var draw uint64
	if len(p.seats) > 1 {
		draw = call.Draw(p.draw)
		i = p.at(draw)
		call.Took(p.ends[i]-uint64(p.candidates[i].Weight), p.ends[i], p.ends[len(p.ends)-1])
	}
	if call.Trace != nil {
		p.trace(call, draw, i, nil)
	}
	res, err := p.seats[i].Pick(info)
	if err == nil || len(call.Exclude) == 0 || !excluded(err) {
		return res, err
	}
	return p.pickOther(info, call, i)
}

// pickOther picks from the localities other than first.
func (p *picker) pickOther(info balancer.PickInfo, call *policy.Call, first int) (balancer.PickResult, error) {
	var done exhausted
	done.add(first)
	for done.n < len(p.seats) {
		draw, i := p.redraw(&done)
		if call.Trace != nil {
			p.trace(call, draw, i, &done)
		}
		if res, err := p.seats[i].Pick(info); err == nil || !excluded(err) {
			return res, err
		}
		done.add(i)
	}
	return balancer.PickResult{}, errAllExcluded
}

func excluded(err error) bool {
	r, ok := errors.AsType[*policy.Refusal](err)
	return ok && r.Kind == policy.KindAllExcluded
}

// trace records the draw of a locality among those that are not exhausted.
func (p *picker) trace(call *policy.Call, draw uint64, chosen int, done *exhausted) {
	step := policy.LocalityStep{Candidates: p.candidates, Draw: draw, Chosen: chosen}
	if done != nil {
		step.Candidates, step.Chosen = p.remaining(done, chosen)
	}
	call.Trace.Steps = append(call.Trace.Steps, step)
}

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
		draw = p.draw()
	}
	var sum uint64
	for i, c := range p.candidates {
		if !done.has(i) {
			sum += uint64(c.Weight)
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
