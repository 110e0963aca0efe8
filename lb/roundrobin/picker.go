package roundrobin

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every READY endpoint is excluded")

// picker is a photograph of the READY endpoints. Picks take them in turn, from
// a random start.
type picker struct {
	rotation []seat
	next     atomic.Uint32
}

type seat struct {
	subConn  balancer.SubConn
	endpoint *resource.Endpoint
}

func newPicker(set *policy.EndpointSet[nothing], draw func() uint64) *picker {
	p := &picker{rotation: make([]seat, 0, set.Census.Ready)}
	for _, m := range set.Order {
		if m.State == connectivity.Ready {
			p.rotation = append(p.rotation, seat{m.SubConn, m.Value})
		}
	}
	p.next.Store(uint32(draw()))
	return p
}

// Pick takes the next endpoint in turn that the pick does not exclude.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	n := uint32(len(p.rotation))
	i := p.next.Add(1) % n
	call, ok := policy.CallOf(info.Ctx)
	if !ok {
		return balancer.PickResult{SubConn: p.rotation[i].subConn}, nil
	}
	skipped := 0
	if len(call.Exclude) > 0 {
		for call.Excludes(p.rotation[i].endpoint) {
			if skipped++; skipped == len(p.rotation) {
				p.trace(call, -1, skipped)
				return balancer.PickResult{}, errAllExcluded
			}
			i = (i + 1) % n
		}
	}
	call.Endpoint = p.rotation[i].endpoint
	if call.Trace != nil {
		p.trace(call, int(i), skipped)
	}
	return balancer.PickResult{SubConn: p.rotation[i].subConn}, nil
}

func (p *picker) trace(call *policy.Call, index, skipped int) {
	if call.Trace == nil {
		return
	}
	call.Trace.Steps = append(call.Trace.Steps, policy.EndpointStep{
		Policy: policy.RoundRobin, Rotation: len(p.rotation), Index: index, Excluded: skipped, Endpoint: call.Endpoint,
	})
}
