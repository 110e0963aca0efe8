// Package leastrequest is gRPC's least_request_experimental (gRFC A48): of a few
// READY endpoints drawn at random, the one with the fewest requests in flight.
// Endpoint weights mean nothing to it.
package leastrequest

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Name is the policy's name in gRPC's registry.
const Name = string(resource.PolicyLeastRequest)

// Config is least_request's config.
type Config struct {
	serviceconfig.LoadBalancingConfig

	// ChoiceCount is how many endpoints are drawn, 2 to 10.
	ChoiceCount uint32
}

const maxChoiceCount = 10

func readConfig(r *policy.ConfigReader) Config {
	c := Config{ChoiceCount: 2}
	const choiceCount = "choiceCount"
	r.Read(map[string]any{choiceCount: &c.ChoiceCount}, nil)
	if c.ChoiceCount < 2 {
		r.Invalid(choiceCount, "is %d: it must be at least 2", c.ChoiceCount)
	}
	if c.ChoiceCount > maxChoiceCount {
		r.WarnByHand(choiceCount, "is %d: reduced to %d, the maximum", c.ChoiceCount, maxChoiceCount)
		c.ChoiceCount = maxChoiceCount
	}
	return c
}

// Builder returns the builder of least_request policies, whose config is a [Config].
func Builder() policy.Builder {
	return policy.NewEndpointBuilder(Name, readConfig, func(e *endpoints) policy.EndpointPolicy[inFlight] {
		return &leastRequest{e}
	})
}

type endpoints = policy.Endpoints[Config, inFlight]

type leastRequest struct{ *endpoints }

// Picker returns the picker of a state.
func (b *leastRequest) Picker(state connectivity.State) balancer.Picker {
	if state != connectivity.Ready {
		return b.endpoints.Picker(state)
	}
	return &picker{Seats: b.Set.Seats(), choices: b.Config.ChoiceCount, draw: b.Conn.Draw()}
}
