package weightedtarget

import (
	"errors"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every READY endpoint of the priority is excluded")

// picker draws one of its seats by weight.
type picker struct {
	draw  func() uint64
	table aliasTable
	seats []balancer.Picker
	// candidates are the seats' localities and weights, for explanations.
	candidates []policy.LocalityCandidate
	failure    error // the first locality's
}

func newPicker(in []*child, draw func() uint64) *picker {
	p := &picker{
		draw:       draw,
		seats:      make([]balancer.Picker, len(in)),
		candidates: make([]policy.LocalityCandidate, len(in)),
	}
	weights := make([]uint32, len(in))
	for i, c := range in {
		p.seats[i] = c.State.Picker
		weights[i] = c.Own.Locality.Weight
		p.candidates[i] = policy.LocalityCandidate{Locality: c.Own.Locality.ID, Weight: weights[i]}
		if p.failure == nil {
			p.failure = policy.FailureOf(c.State)
		}
	}
	p.table = newAliasTable(weights)
	return p
}

func (p *picker) Failure() error { return p.failure }

// Pick lets the drawn locality pick. If all its endpoints are excluded, another is
// drawn.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	i := 0
	var draw uint64
	if len(p.seats) > 1 {
		draw = p.draw()
		i = p.table.at(draw)
	}
	call := policy.CallOf(info.Ctx)
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
