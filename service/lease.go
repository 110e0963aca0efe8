package service

import "time"

// Outcome is how a leased request ended.
type Outcome string

// The outcomes. A caller tells one of the first three.
const (
	Success   Outcome = "success"
	Failure   Outcome = "error"
	Cancelled Outcome = "cancelled"
	Expired   Outcome = "expired"
)

// Load is what the upstream said of its load with the answer (ORCA's
// OrcaLoadReport).
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

// LeaseState is what a lease holds, or how it ended.
type LeaseState struct {
	ID       string `json:"id"`
	Cluster  string `json:"cluster"`
	Address  string `json:"address"`
	Priority int    `json:"priority"`
	// State is held or ended.
	State     string    `json:"state" enums:"held,ended"`
	ExpiresAt time.Time `json:"expires_at"`
	// Outcome and EndedAt are set once the lease has ended.
	Outcome Outcome    `json:"outcome,omitempty" enums:"success,error,cancelled,expired"`
	EndedAt *time.Time `json:"ended_at,omitempty"`
}
