package pickfirst

import (
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// endpoint is one endpoint of the config.
type endpoint struct {
	value     *resource.Endpoint
	addresses []*address
}

// newEndpoints makes endpoints of a config's, with each address once.
func newEndpoints(from []*resource.Endpoint) []*endpoint {
	endpoints := make([]*endpoint, 0, len(from))
	seen := make(map[string]bool, len(from))
	for _, value := range from {
		e := &endpoint{value: value}
		for _, a := range policy.ResolverEndpoint(value).Addresses {
			if !seen[a.Addr] {
				seen[a.Addr] = true
				e.addresses = append(e.addresses, &address{Address: a, of: e, state: connectivity.Idle})
			}
		}
		if len(e.addresses) > 0 {
			endpoints = append(endpoints, e)
		}
	}
	return endpoints
}

// state is the best state of its SubConns; IDLE without any.
func (e *endpoint) state() connectivity.State {
	var c policy.Census
	for _, a := range e.addresses {
		if a.subConn != nil {
			c.Count(a.state, 1)
		}
	}
	if c.Total() == 0 {
		return connectivity.Idle
	}
	return c.Best()
}

func (e *endpoint) describe() policy.EndpointNode {
	n := policy.EndpointNode{Endpoint: e.value, State: e.state()}
	for _, a := range e.addresses {
		switch {
		case a.state == connectivity.Ready:
			n.Address = a.Addr
		case a.lastErr != nil && n.State != connectivity.Ready:
			n.LastErr = a.lastErr
		}
	}
	return n
}

// shuffle returns the endpoints in a weighted random order (gRFC A113): each has the
// chance of its weight to be the first, then of the rest, and so on.
func shuffle(endpoints []*endpoint, weights policy.Weights, draw func() uint64) []*endpoint {
	wait := make(map[*endpoint]float64, len(endpoints)) // exponentially distributed, the shorter the heavier
	for _, e := range endpoints {
		wait[e] = -math.Log(policy.UnitOf(draw())) / float64(weights.Of(e.value))
	}
	return slices.SortedStableFunc(slices.Values(endpoints), func(a, b *endpoint) int { return cmp.Compare(wait[a], wait[b]) })
}

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "the endpoint that all picks go to is excluded")

type picker struct{ *policy.Upstream }

func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	if call.Excludes(p.Endpoint) {
		p.trace(call, -1, 1)
		return balancer.PickResult{}, errAllExcluded
	}
	res := p.Upstream.Pick(call)
	p.trace(call, 0, 0)
	return res, nil
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
		p.policy.Conn.Post(p.policy.exitIdle)
	}
	return policy.QueuePicker.Pick(info)
}
