package service

// Step is one step of a pick's decision. Which of the parts is set is told by
// Step.
type Step struct {
	// Step is cluster, priority, drop, circuit_breaker, locality, endpoint,
	// queued or failure.
	Step string `json:"step" enums:"cluster,priority,drop,circuit_breaker,locality,endpoint,opaque,queued,failure"`
	// Says tells the step in a sentence.
	Says     string        `json:"says"`
	Cluster  *ClusterStep  `json:"cluster,omitempty"`
	Priority *PriorityStep `json:"priority,omitempty"`
	Drop     *DropStep     `json:"drop,omitempty"`
	Breaker  *BreakerStep  `json:"circuit_breaker,omitempty"`
	Locality *LocalityStep `json:"locality,omitempty"`
	Endpoint *EndpointStep `json:"endpoint,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// ClusterStep is the lookup of the cluster.
type ClusterStep struct {
	Name  string `json:"name"`
	Found bool   `json:"found"`
}

// PriorityStep is the priority in use, and why each higher one is not.
type PriorityStep struct {
	Priority   int          `json:"priority"`
	State      string       `json:"state"`
	PassedOver []PassedOver `json:"passed_over"`
}

// PassedOver is a priority that is not in use.
type PassedOver struct {
	Priority int    `json:"priority"`
	State    string `json:"state"`
	Why      string `json:"why"`
}

// DropStep is one drop category's draw: a number in [0, 1,000,000) that drops
// where it is below per_million.
type DropStep struct {
	Category   string `json:"category"`
	PerMillion uint64 `json:"per_million"`
	Draw       uint64 `json:"draw"`
	Dropped    bool   `json:"dropped"`
}

// BreakerStep is the circuit breaker as the pick found it.
type BreakerStep struct {
	InFlight    int64  `json:"in_flight"`
	MaxRequests uint32 `json:"max_requests"`
	Refused     bool   `json:"refused"`
}

// LocalityStep is the weighted draw of a locality.
type LocalityStep struct {
	Candidates []LocalityCandidate `json:"candidates"`
	// Draw is uniform in [0, 1).
	Draw   float64  `json:"draw"`
	Chosen Locality `json:"chosen"`
}

// LocalityCandidate is a locality in the draw.
type LocalityCandidate struct {
	Locality Locality `json:"locality"`
	Weight   uint32   `json:"weight"`
	Share    float64  `json:"share"`
}

// EndpointStep is the choice of the endpoint.
type EndpointStep struct {
	Policy string `json:"policy"`
	// Rotation is how many endpoints take turns, Index whose turn it was.
	Rotation int    `json:"rotation"`
	Index    int    `json:"index"`
	Excluded int    `json:"excluded"`
	Address  string `json:"address"`
}
