package priority

import (
	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
)

// picker is the picker of the child in use, which notes its priority.
type picker struct {
	child balancer.Picker
	step  policy.PriorityStep

	failure error
}

func (b *priority) picker() balancer.Picker {
	p := &picker{
		child:   b.inUse.state.Picker,
		failure: policy.FailureOf(b.inUse.state),
		step:    policy.PriorityStep{Priority: b.used, State: b.inUse.state.ConnectivityState},
	}
	for i, c := range b.order[:b.used] {
		p.step.PassedOver = append(p.step.PassedOver, policy.PassedOver{
			Priority: i, State: c.state.ConnectivityState, Why: c.condition(),
		})
	}
	return p
}

// Failure is the error of the child in use.
func (p *picker) Failure() error { return p.failure }

// Pick lets the child in use pick.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if call, ok := policy.CallOf(info.Ctx); ok {
		call.Priority = p.step.Priority
		if call.Trace != nil {
			call.Trace.Steps = append(call.Trace.Steps, p.step)
		}
	}
	return p.child.Pick(info)
}
