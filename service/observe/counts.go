package observe

import (
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ClusterCounts are the counters of a cluster. Those that only grow begin with the
// process, or when the target gets the cluster.
type ClusterCounts struct {
	Time    time.Time `json:"time"` // when it was read
	Cluster string    `json:"cluster"`
	// Target is the xds target in whose tree picks and localities are counted;
	// empty for the cluster's own. All else is of the whole process.
	Target string `json:"target"`
	// Picks counts the picks by result: ok, or the code of the refusal. A cluster
	// without metrics of its own has only ok.
	Picks map[string]uint64 `json:"picks"`
	// Drops counts the picks that were dropped, by category; those of an AGGREGATE
	// are its leaves' together.
	Drops map[string]uint64 `json:"drops"`
	// CircuitBroken counts the picks that the circuit breaker refused, or those of
	// the leaves did.
	CircuitBroken uint64 `json:"circuit_broken"`
	// Breaker is absent for an AGGREGATE, whose leaves have theirs.
	Breaker *ledger.Breaker `json:"breaker,omitempty"`
	// Leaves are those of an AGGREGATE, in order.
	Leaves []LeafCounts `json:"leaves,omitempty"`
	// Leases are those that are held now.
	Leases int64 `json:"leases"`
	// Holders are the owners that hold the most leases, the largest first, at most 3; absent in
	// a watch of all clusters, and without leases.
	Holders []ledger.Holder `json:"holders,omitempty"`
	// Localities are those of the cluster's configuration, in order; absent in a watch
	// of all clusters.
	Localities []LocalityPicks `json:"localities,omitempty"`
}

// LeafCounts counts what a leaf of an AGGREGATE drops and refuses, for all clusters and
// targets that pick from it.
type LeafCounts struct {
	Name          string            `json:"name"`
	Drops         map[string]uint64 `json:"drops"`
	CircuitBroken uint64            `json:"circuit_broken"`
	Breaker       ledger.Breaker    `json:"breaker"`
}

// LocalityPicks counts the successful picks of a locality of a priority. A locality that
// leaves the configuration and comes back begins at zero.
type LocalityPicks struct {
	Priority int      `json:"priority"`
	Locality Locality `json:"locality"`
	Picks    uint64   `json:"picks"`
}

// counted reads the counters of a cluster, with or without its localities and the holders of its
// leases. Time is zero.
func counted(m *ledger.Cluster, withDetails bool) ClusterCounts {
	out := ClusterCounts{
		Cluster: m.Name, Target: m.Target.Label, Leases: m.Totals.Leases.Load(),
		Picks: make(map[string]uint64), Drops: make(map[string]uint64),
	}
	for r, n := range m.Results() {
		out.Picks[string(r)] = n
	}
	cc := m.ClusterConfig()
	aggregate := cc.Err == nil && cc.Cluster.Type == resource.ClusterAggregate
	for _, l := range m.Leaves {
		b := l.Breaker()
		leaf := LeafCounts{Name: l.Cluster.Name, Drops: make(map[string]uint64), CircuitBroken: b.Rejected, Breaker: b}
		for _, d := range dropStates(l) { // a category that is listed twice has one counter
			leaf.Drops[d.Category] = d.Dropped
		}
		for category, n := range leaf.Drops {
			out.Drops[category] += n
		}
		out.CircuitBroken += b.Rejected
		switch {
		case aggregate:
			out.Leaves = append(out.Leaves, leaf)
		case cc.Err == nil:
			out.Breaker = &leaf.Breaker
		}
	}
	if withDetails {
		out.Holders = m.Totals.Leases.LargestNow(time.Now())
		for priority, l := range m.Localities() {
			out.Localities = append(out.Localities, LocalityPicks{priority, Locality(l.ID), m.Places.Count(priority, l.ID)})
		}
	}
	return out
}

// counters is everything that can change a cluster's counts, as small values: counters
// that are equal have equal counts. Holders of leases change with a pick, or their number.
type counters struct {
	record *ledger.Record
	config uint64
	// These only grow.
	picks, placed, refused uint64
	inFlight, leases       int64
}

func countersOf(m *ledger.Cluster, withLocalities bool) counters {
	out := counters{record: m.Record, config: m.Version, picks: picked(m), leases: m.Totals.Leases.Load()}
	if withLocalities {
		out.placed = m.Places.Total()
	}
	for _, l := range m.Leaves {
		out.inFlight = 31*out.inFlight + l.Counters.Breaker.InFlight() // not their sum: a request may end in one leaf when one begins in another
		out.refused += l.Counters.Breaker.Rejected()
		if s, ok := l.Fleet(); ok {
			out.inFlight = 31*out.inFlight + 3*s.Share + s.Demand
		}
		if l.Assignment != nil && len(l.Assignment.Drops) > 0 {
			for _, n := range l.Counters.Drops() {
				out.refused += n
			}
		}
	}
	return out
}

// Within is that of [ClusterSummary].
func (c ClusterCounts) Within(s *ledger.Scope) ClusterCounts {
	if !s.Target(c.Target) {
		c.Target = ""
	}
	return c
}
