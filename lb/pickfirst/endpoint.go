package pickfirst

import (
	"cmp"
	"math"
	"slices"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// endpoint is one endpoint of the config.
type endpoint struct {
	value     *resource.Endpoint
	addresses []*address
}

// newEndpoints makes endpoints of a config's, with each address once.
func newEndpoints(from []resolver.Endpoint) []*endpoint {
	endpoints := make([]*endpoint, 0, len(from))
	seen := make(map[string]bool, len(from))
	for _, re := range from {
		e := &endpoint{value: policy.EndpointOf(re)}
		for _, a := range re.Addresses {
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
	n.InRotation = n.State == connectivity.Ready
	for _, a := range e.addresses {
		if a.lastErr != nil {
			n.LastErr = a.lastErr
		}
		if a.state == connectivity.Ready {
			n.Address = a.Addr
		}
	}
	if n.InRotation {
		n.LastErr = nil
	}
	return n
}

// shuffle returns the endpoints in a weighted random order (gRFC A113): each has the
// chance of its weight to be the first, then of the rest, and so on.
func shuffle(endpoints []*endpoint, weights policy.Weights, draw func() uint64) []*endpoint {
	type ticket struct {
		endpoint *endpoint
		wait     float64 // exponentially distributed, the shorter the heavier
	}
	tickets := make([]ticket, len(endpoints))
	for i, e := range endpoints {
		tickets[i] = ticket{e, -math.Log(policy.UnitOf(draw())) / float64(weights.Of(e.value))}
	}
	slices.SortStableFunc(tickets, func(a, b ticket) int { return cmp.Compare(a.wait, b.wait) })
	out := make([]*endpoint, len(tickets))
	for i, t := range tickets {
		out[i] = t.endpoint
	}
	return out
}

// interleave returns all addresses in the order of attempts.
func interleave(endpoints []*endpoint) []*address {
	var list []*address
	for _, e := range endpoints {
		list = append(list, e.addresses...)
	}
	return policy.Interleave(list, func(a *address) string { return a.Addr })
}
