package priority

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// picker records the priority in use; of a leaf, the leaf's own picker does.
type picker struct {
	child    balancer.Picker
	priority int
	step     policy.Step // a PriorityStep, or a LeafStep

	failure error
}

func (b *priority) picker(connectivity.State) balancer.Picker {
	p := &picker{
		child:    b.inUse.state.Picker,
		failure:  policy.FailureOf(b.inUse.state),
		priority: b.inUse.number,
	}
	if b.aggregate {
		p.step = b.leafStep()
	} else {
		p.step = b.priorityStep()
	}
	return p
}

func (b *priority) priorityStep() policy.PriorityStep {
	step := policy.PriorityStep{Priority: b.inUse.number, State: b.inUse.state.ConnectivityState}
	for _, c := range b.order[:b.used] {
		step.PassedOver = append(step.PassedOver, policy.PassedOver{
			Priority: c.number, State: c.state.ConnectivityState, Why: c.condition(),
		})
	}
	return step
}

func (b *priority) leafStep() policy.LeafStep {
	step := policy.LeafStep{Leaf: b.inUse.name, State: b.inUse.state.ConnectivityState}
	for _, c := range b.order[:b.used] {
		step.PassedOver = append(step.PassedOver, policy.PassedOverLeaf{Leaf: c.name, State: c.connectivity(), Why: c.condition()})
	}
	return step
}

func (p *picker) Failure() error { return p.failure }

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	call.Priority = p.priority
	if call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, p.step)
	}
	return p.child.Pick(info)
}
