// Package roundrobin is gRPC's round_robin: READY endpoints take turns, without
// weights.
package roundrobin

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Name is the policy's name in gRPC's registry.
const Name = string(resource.PolicyRoundRobin)

// Builder returns the builder of round_robin policies.
func Builder() policy.Builder {
	return policy.NewEndpointBuilder(Name, resource.PolicyTraits{IgnoresWeights: true}, policy.ReadNoConfig, func(e *endpoints) policy.EndpointPolicy[nothing] {
		return &roundRobin{e}
	})
}

type endpoints = policy.Endpoints[policy.NoConfig, nothing]

// nothing is what round_robin keeps for each endpoint.
type nothing struct{}

type roundRobin struct{ *endpoints }

func (b *roundRobin) Picker(state connectivity.State) balancer.Picker {
	if state != connectivity.Ready {
		return b.endpoints.Picker(state)
	}
	p := &picker{Seats: b.Seats(), draw: b.Conn.Draw()}
	p.next.Store(uint32(p.draw()))
	return p
}

// picker takes the READY endpoints in turn, from a random start.
type picker struct {
	policy.Seats

	draw func() uint64
	next atomic.Uint32
	_    [28]byte // fills a cache line, which picks of other localities do not write
}

// Pick takes the next endpoint in turn; one of a batch the endpoint at its place. If the pick excludes it, one of the others is
// drawn.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	var turn int
	if call.Even() {
		turn = p.At(call.Draw(p.draw))
	} else {
		turn = int(p.next.Add(1) % uint32(len(p.Seats)))
		p.Expect(turn)
	}
	i := call.Turn(Name, p, turn, p.draw)
	if i < 0 {
		return balancer.PickResult{}, policy.ErrAllExcluded
	}
	return p.Seats[i].Pick(call), nil
}
