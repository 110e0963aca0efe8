package roundrobin

import (
	"math/bits"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "every READY endpoint is excluded")

// picker is a snapshot of the READY endpoints. Picks take them in turn, from a
// random start.
type picker struct {
	rotation []seat
	draw     func() uint64
	next     atomic.Uint32
}

type seat struct {
	subConn  balancer.SubConn
	endpoint *resource.Endpoint
}

func newPicker(set *policy.EndpointSet[nothing], draw func() uint64) *picker {
	p := &picker{rotation: make([]seat, 0, set.Census.Ready), draw: draw}
	for _, m := range set.Order {
		if m.State == connectivity.Ready {
			p.rotation = append(p.rotation, seat{m.SubConn, m.Value})
		}
	}
	p.next.Store(uint32(draw()))
	return p
}

// Pick takes the next endpoint in turn. If the pick excludes it, one of the
// endpoints that remain is drawn, each with the same chance.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	i := int(p.next.Add(1) % uint32(len(p.rotation)))
	call, ok := policy.CallOf(info.Ctx)
	if !ok {
		return balancer.PickResult{SubConn: p.rotation[i].subConn}, nil
	}
	var insteadOf *resource.Endpoint
	if call.Excludes(p.rotation[i].endpoint) {
		insteadOf = p.rotation[i].endpoint
		if i = call.Redraw(p, p.draw); i < 0 {
			p.trace(call, i, nil)
			return balancer.PickResult{}, errAllExcluded
		}
	}
	call.Endpoint = p.rotation[i].endpoint
	p.trace(call, i, insteadOf)
	return balancer.PickResult{SubConn: p.rotation[i].subConn}, nil
}

func (p *picker) trace(call *policy.Call, index int, insteadOf *resource.Endpoint) {
	if call.Trace == nil {
		return
	}
	call.Trace.Steps = append(call.Trace.Steps, policy.EndpointStep{
		Policy: policy.RoundRobin, Rotation: len(p.rotation), Index: index,
		Excluded: call.CountExcluded(p), InsteadOf: insteadOf, Endpoint: call.Endpoint,
	})
}

// Len returns the number of READY endpoints.
func (p *picker) Len() int { return len(p.rotation) }

// Endpoint returns the endpoint at an index.
func (p *picker) Endpoint(i int) *resource.Endpoint { return p.rotation[i].endpoint }

// Weight returns 1: round_robin ignores weights.
func (p *picker) Weight(int) float64 { return 1 }

// At maps a draw to an index, with the same chance for each.
func (p *picker) At(draw uint64) int {
	i, _ := bits.Mul64(draw, uint64(len(p.rotation)))
	return int(i)
}
