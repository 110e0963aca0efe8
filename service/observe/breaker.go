package observe

import "github.com/lbd-dev/lbd/service/ledger"

// BreakerFull reports the circuit breakers of a cluster that have reached their limits.
// It is called when one has refused a pick.
func (es *Events) BreakerFull(m *ledger.Cluster) {
	for _, l := range m.Leaves {
		if l.Counters.Breaker.Filled(l.Cluster.MaxRequests) {
			es.Add(Event{Type: EventBreakerOpened, Cluster: l.Cluster.Name, Says: "the circuit breaker is full: picks are refused"})
			es.log.Warn("circuit breaker opened", "cluster", l.Cluster.Name)
		}
	}
}

// BreakerEased reports the circuit breakers of a cluster that admit picks again. It is
// called after a lease ended or a limit changed.
func (es *Events) BreakerEased(m *ledger.Cluster) {
	for _, l := range m.Leaves {
		if l.Counters.Breaker.Eased(l.Cluster.MaxRequests) {
			es.Add(Event{Type: EventBreakerClosed, Cluster: l.Cluster.Name, Says: "the circuit breaker admits picks again"})
			es.log.Info("circuit breaker closed", "cluster", l.Cluster.Name)
		}
	}
}
