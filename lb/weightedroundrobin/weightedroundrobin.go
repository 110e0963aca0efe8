// Package weightedroundrobin is gRPC's weighted_round_robin (gRFC A58): READY
// endpoints take turns by weights that are computed from the loads that they report.
//
// While fewer than two of them have such a weight, the endpoint weights of EDS count.
// gRPC gives all the same weight then.
package weightedroundrobin

import (
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Name is the policy's name in gRPC's registry.
const Name = "weighted_round_robin"

// Builder returns the builder of weighted_round_robin policies, whose config is a
// [Config].
func Builder() policy.Builder {
	return policy.NewEndpointBuilder(Name, resource.PolicyTraits{
		SharesHold: " chooses by the load that endpoints report: these are the shares while all loads are equal",
	}, readConfig, func(e *endpoints) policy.EndpointPolicy[load] {
		return &weightedRoundRobin{endpoints: e}
	})
}

type endpoints = policy.Endpoints[Config, load]

// weightedRoundRobin belongs to the owner.
type weightedRoundRobin struct {
	*endpoints

	// picker is nil unless READY. timer updates its weights; nil without load reports.
	picker *picker
	timer  *policy.Timer
}

// EndpointChanged forgets what an endpoint reported before it reconnected. One that is
// READY right after it failed was ejected, and stayed connected.
func (b *weightedRoundRobin) EndpointChanged(m *policy.Member[load], from, counted connectivity.State) {
	if m.State() == connectivity.Ready && from != connectivity.TransientFailure {
		m.Own.last.Store(nil)
	}
	b.endpoints.EndpointChanged(m, from, counted)
}

func (b *weightedRoundRobin) Picker(state connectivity.State) balancer.Picker {
	b.timer.Stop()
	b.timer, b.picker = nil, nil
	if state != connectivity.Ready {
		return b.endpoints.Picker(state)
	}
	b.picker = newPicker(b.Seats(), b.Own(), b.wake, b.Conn.Draw())
	b.weigh()
	return b.picker
}

// weigh updates the weights of the picker, periodically while there are load reports.
func (b *weightedRoundRobin) weigh() {
	b.timer = nil
	if b.picker != nil && b.picker.weigh(time.Now(), b.Config) {
		b.timer = b.Conn.AfterFunc(b.Config.WeightUpdatePeriod, b.reweigh)
	}
}

// reweigh is weigh when the timer fires. The shares have changed.
func (b *weightedRoundRobin) reweigh() {
	b.Mark()
	b.weigh()
}

// wake starts the timer after the first report of a load. Any goroutine may call it.
func (b *weightedRoundRobin) wake() {
	b.Conn.Post(func() {
		if b.timer == nil && !b.Closed() {
			b.timer = b.Conn.AfterFunc(b.Config.WeightUpdatePeriod, b.reweigh)
		}
	})
}

func (b *weightedRoundRobin) Close() {
	b.picker = nil
	b.timer.Stop()
	b.endpoints.Close()
}

func (b *weightedRoundRobin) Shares() []float64 {
	shares := make([]float64, len(b.Order))
	for i, m := range b.Order {
		if m.State() == connectivity.Ready {
			shares[i] = m.Own.share
		}
	}
	return shares
}

// Config is weighted_round_robin's config (gRFC A58).
type Config struct {
	serviceconfig.LoadBalancingConfig

	// BlackoutPeriod is how long an endpoint has to report its load before its weight
	// counts.
	BlackoutPeriod time.Duration
	// WeightExpirationPeriod is how long a weight counts after the last report.
	WeightExpirationPeriod time.Duration
	// WeightUpdatePeriod is the time between updates of the weights.
	WeightUpdatePeriod time.Duration
	// ErrorUtilizationPenalty is what errors add to an endpoint's utilization, times
	// the part of the requests that are errors.
	ErrorUtilizationPenalty float64
}

// minWeightUpdatePeriod is gRPC's.
const minWeightUpdatePeriod = 100 * time.Millisecond

func readConfig(r *policy.ConfigReader) Config {
	c := Config{
		BlackoutPeriod:          10 * time.Second,
		WeightExpirationPeriod:  3 * time.Minute,
		WeightUpdatePeriod:      time.Second,
		ErrorUtilizationPenalty: 1,
	}
	outOfBand, reporting := false, time.Duration(0)
	r.Read(map[string]any{
		"blackoutPeriod":          &c.BlackoutPeriod,
		"weightExpirationPeriod":  &c.WeightExpirationPeriod,
		"weightUpdatePeriod":      &c.WeightUpdatePeriod,
		"errorUtilizationPenalty": &c.ErrorUtilizationPenalty,
	}, map[string]any{
		"enableOobLoadReport": &outOfBand,
		"oobReportingPeriod":  &reporting,
	})
	if outOfBand {
		r.Warn("enableOobLoadReport", "is not applied: loads are those that are reported with the outcomes of picks")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"blackoutPeriod", c.BlackoutPeriod},
		{"weightExpirationPeriod", c.WeightExpirationPeriod},
		{"weightUpdatePeriod", c.WeightUpdatePeriod},
	} {
		if d.value < 0 {
			r.InvalidByHand(d.name, "is negative")
		}
	}
	if c.ErrorUtilizationPenalty < 0 {
		r.Invalid("errorUtilizationPenalty", "is %v: it must not be negative", c.ErrorUtilizationPenalty)
	}
	if c.WeightUpdatePeriod < minWeightUpdatePeriod {
		r.WarnByHand("weightUpdatePeriod", "is %s: raised to %s, the minimum", c.WeightUpdatePeriod, minWeightUpdatePeriod)
		c.WeightUpdatePeriod = minWeightUpdatePeriod
	}
	return c
}
