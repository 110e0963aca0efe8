package weightedroundrobin

import (
	"fmt"

	"github.com/lbd-dev/lbd/lb/policy"
)

// WeightSource is what weights are computed from.
type WeightSource string

// The sources of weights.
const (
	// WeightsFromLoads are computed from the loads that endpoints report.
	WeightsFromLoads WeightSource = "loads"
	// WeightsFromEDS are load_balancing_weight of EDS.
	WeightsFromEDS WeightSource = "eds"
)

// WeightedTurn is the weight by which the chosen endpoint has its turns.
type WeightedTurn struct {
	Weight float64 `json:"weight"`
	// Share is the endpoint's part of all turns, 0 to 1.
	Share float64 `json:"share"`
	// From is what the weights are computed from: the loads that endpoints report, or
	// the endpoint weights of EDS while fewer than two have reported enough.
	From WeightSource `json:"from" swaggertype:"string" enums:"loads,eds"`
}

// Says describes the step in a sentence.
func (t *WeightedTurn) Says(s policy.EndpointStep) string {
	return fmt.Sprintf("%s, which has %.1f%% of the turns by its weight of %.4g from %s (%d excluded)",
		s.Turn(), 100*t.Share, t.Weight, t.From, s.Excluded)
}
