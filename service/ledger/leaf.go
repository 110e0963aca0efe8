package ledger

import (
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Leaf is a cluster that a cluster comes down to, as its newest config that can be used
// has it.
type Leaf struct {
	*resource.ClusterConfig

	Counters *policy.ClusterCounters // of {cluster, EDS service name}; every leaf of that has the same
	Totals   *Totals                 // of the leaf's own cluster
}

// serviceKey names a leaf's counters.
func (leaf Leaf) serviceKey() policy.ServiceKey {
	return policy.ServiceKey{Cluster: leaf.Cluster.Name, EDSServiceName: leaf.Cluster.EDSServiceName}
}

// Breaker is a circuit breaker at one moment.
type Breaker struct {
	InFlight    int64
	MaxRequests uint32
	Rejected    uint64
}

// Open reports whether as many requests are in flight as may be.
func (b Breaker) Open() bool { return b.InFlight >= int64(b.MaxRequests) }

// Breaker is the leaf's circuit breaker now.
func (leaf Leaf) Breaker() Breaker {
	b := &leaf.Counters.Breaker
	return Breaker{InFlight: b.InFlight(), MaxRequests: leaf.Cluster.MaxRequests, Rejected: b.Rejected()}
}
