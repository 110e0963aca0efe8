package weightedroundrobin

import (
	"time"

	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
)

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
