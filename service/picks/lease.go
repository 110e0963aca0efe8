package picks

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/picks/handover"
)

// Outcome is how a leased request ended.
type Outcome = policy.Outcome

// The outcomes. Callers report all but the last one.
const (
	Success     = policy.OutcomeSuccess
	Failure     = policy.OutcomeError
	Cancelled   = policy.OutcomeCancelled
	Unreachable = policy.OutcomeUnreachable
	Expired     = policy.OutcomeExpired
)

// Load is the load that the upstream reported with its answer (ORCA's OrcaLoadReport).
type Load struct {
	CPUUtilization         float64            `json:"cpu_utilization"`
	MemUtilization         float64            `json:"mem_utilization"`
	ApplicationUtilization float64            `json:"application_utilization"`
	RPSFractional          float64            `json:"rps_fractional"`
	EPS                    float64            `json:"eps"`
	Utilization            map[string]float64 `json:"utilization"`
	RequestCost            map[string]float64 `json:"request_cost"`
	NamedMetrics           map[string]float64 `json:"named_metrics"`
}

// LoadMaps are the fields of a Load that are maps.
var LoadMaps = []string{"utilization", "request_cost", "named_metrics"}

// check rejects a number that is not finite, or negative where ORCA allows none. Costs and
// named metrics may be negative.
func (l *Load) check() error {
	type number struct {
		name     string
		value    float64
		unsigned bool
	}
	all := []number{
		{"cpu_utilization", l.CPUUtilization, true},
		{"mem_utilization", l.MemUtilization, true},
		{"application_utilization", l.ApplicationUtilization, true},
		{"rps_fractional", l.RPSFractional, true},
		{"eps", l.EPS, true},
	}
	add := func(name string, values map[string]float64, unsigned bool) {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			all = append(all, number{fmt.Sprintf("%s[%q]", name, key), values[key], unsigned})
		}
	}
	add("utilization", l.Utilization, true)
	add("request_cost", l.RequestCost, false)
	add("named_metrics", l.NamedMetrics, false)
	for _, n := range all {
		switch {
		case math.IsNaN(n.value) || math.IsInf(n.value, 0):
			return fault.Errorf(fault.InvalidArgument, "load.%s is %g: it must be a finite number", n.name, n.value)
		case n.unsigned && n.value < 0:
			return fault.Errorf(fault.InvalidArgument, "load.%s is %g: it must not be negative", n.name, n.value)
		}
	}
	return nil
}

func (l *Load) report() *orcav3.OrcaLoadReport {
	return &orcav3.OrcaLoadReport{
		CpuUtilization:         l.CPUUtilization,
		MemUtilization:         l.MemUtilization,
		ApplicationUtilization: l.ApplicationUtilization,
		RpsFractional:          l.RPSFractional,
		Eps:                    l.EPS,
		Utilization:            l.Utilization,
		RequestCost:            l.RequestCost,
		NamedMetrics:           l.NamedMetrics,
	}
}

// LeaseState is what a lease holds, or how it ended.
type LeaseState struct {
	ID      LeaseID `json:"id" swaggertype:"string"`
	Cluster string  `json:"cluster"`
	// Leaf is the leaf of the AGGREGATE that the request goes to; absent for any other cluster.
	Leaf string `json:"leaf,omitempty"`
	// Target is the xds target whose routes chose the cluster.
	Target   string `json:"target,omitempty"`
	Address  string `json:"address"`
	Priority int    `json:"priority"`
	ledger.Owner
	// State is held or ended.
	State     string    `json:"state" enums:"held,ended"`
	GrantedAt time.Time `json:"granted_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// Outcome and EndedAt are set once the lease has ended.
	Outcome policy.Outcome `json:"outcome,omitempty" enums:"success,error,cancelled,unreachable,expired"`
	EndedAt time.Time      `json:"ended_at,omitzero" validate:"optional"`
}

// handedLease is a lease for the next process, with what it counts in.
type handedLease struct {
	LeaseState

	Leaf handover.Leaf `json:"leaf"`
}

// Within returns the state as a caller of a scope sees it: without a target that is out of the scope, and as one of the
// leaf if only that is in it.
func (l LeaseState) Within(s *ledger.Scope) LeaseState {
	if l.Leaf != "" && s.Cluster(l.Leaf) && !s.Cluster(l.Cluster) {
		l.Cluster, l.Leaf = l.Leaf, ""
	}
	if !s.Target(l.Target) {
		l.Target = ""
	}
	return l
}
