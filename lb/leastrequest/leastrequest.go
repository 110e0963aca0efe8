// Package leastrequest is gRPC's least_request_experimental (gRFC A48): of a few
// READY endpoints drawn at random, the one with the fewest requests in flight.
// Endpoint weights mean nothing to it.
package leastrequest

import (
	"fmt"
	"strings"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Name is the policy's name in gRPC's registry.
const Name = "least_request_experimental"

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
	return policy.NewEndpointBuilder(Name, resource.PolicyTraits{
		IgnoresWeights: true,
		SharesHold:     " chooses by requests in flight: these are the shares while all endpoints are equally busy",
	}, readConfig, func(e *endpoints) policy.EndpointPolicy[inFlight] {
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
	return &picker{Seats: b.Seats(), inFlight: b.Own(), choices: b.Config.ChoiceCount, draw: b.Conn.Draw()}
}

// inFlight counts the requests of one endpoint across pickers, and after its removal.
type inFlight struct{ policy.InFlight }

func (f *inFlight) Finish(policy.Outcome, balancer.DoneInfo) { f.Add(-policy.InFlightUnit) }

// ReportedInFlight returns what counts reported requests, too.
func (f *inFlight) ReportedInFlight() *policy.InFlight { return &f.InFlight }

// picker chooses from the endpoints that were READY when it was made. Their counts are
// shared.
type picker struct {
	policy.Seats

	inFlight []*inFlight // of the seats
	choices  uint32
	draw     func() uint64
}

// Pick draws endpoints, possibly the same several times, and takes the first of those
// with the fewest requests in flight. A pick that holds counts until it is finished.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	var step *policy.EndpointStep
	if call.Trace != nil {
		step = &policy.EndpointStep{Policy: Name, Rotation: len(p.Seats), Index: -1, Excluded: call.CountExcluded(p)}
		defer func() { call.Trace.Steps = append(call.Trace.Steps, *step) }()
	}
	var compared Compared
	best := -1
	var fewest int64
	for range p.choices {
		i := p.drawn(call)
		if i < 0 {
			return balancer.PickResult{}, policy.ErrAllExcluded
		}
		n := p.inFlight[i].Load()
		if best < 0 || n < fewest {
			best, fewest = i, n
		}
		if step != nil {
			compared = append(compared, InFlight{p.Seats[i].Endpoint.Addresses[0], float64(n) / policy.InFlightUnit})
		}
	}
	u := p.Seats[best]
	if call.Hold {
		p.inFlight[best].Add(policy.InFlightUnit)
		call.OnFinish(p.inFlight[best])
	}
	if step != nil {
		step.Index, step.Endpoint, step.Detail = best, u.Endpoint, compared
	}
	return u.Pick(call), nil
}

// drawn draws a seat; if call excludes it, one of the others. It returns -1 if call
// excludes all.
func (p *picker) drawn(call *policy.Call) int {
	i := p.At(call.Random(p.draw))
	if call.Excludes(p.Seats[i].Endpoint) {
		return call.Redraw(p, p.draw)
	}
	return i
}

// Compared are the endpoints that were drawn for a pick, in turn.
type Compared []InFlight

// InFlight is the number of requests that an endpoint had before the pick: leases, and what callers
// without leases have reported, which need not be a whole number.
type InFlight struct {
	Address  string  `json:"address"`
	InFlight float64 `json:"in_flight"`
}

// Says describes the step in a sentence.
func (c Compared) Says(s policy.EndpointStep) string {
	drawn := make([]string, len(c))
	for i, e := range c {
		drawn[i] = fmt.Sprintf("%s with %.4g in flight", e.Address, e.InFlight)
	}
	return fmt.Sprintf("%s drew %s of %d READY (%d excluded), and took %s",
		s.Policy, strings.Join(drawn, ", "), s.Rotation, s.Excluded, s.Endpoint.Addresses[0])
}
