package pickfirst

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "the endpoint that all picks go to is excluded")

type picker struct {
	subConn  balancer.SubConn
	endpoint *resource.Endpoint
}

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	if call.Excludes(p.endpoint) {
		p.trace(call, -1, 1)
		return balancer.PickResult{}, errAllExcluded
	}
	call.Endpoint = p.endpoint
	p.trace(call, 0, 0)
	return balancer.PickResult{SubConn: p.subConn}, nil
}

func (p *picker) trace(call *policy.Call, index, excluded int) {
	if call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, policy.EndpointStep{
			Policy: Name, Rotation: 1, Index: index, Excluded: excluded, Endpoint: call.Endpoint,
		})
	}
}

// idlePicker queues picks, and connects on the first.
type idlePicker struct {
	policy *pickFirst
	asked  atomic.Bool
}

func (p *idlePicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	if p.asked.CompareAndSwap(false, true) {
		p.policy.Conn.Post(p.policy.ExitIdle)
	}
	return policy.QueuePicker.Pick(info)
}
