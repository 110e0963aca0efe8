package observe

import "github.com/lbd-dev/lbd/service/ledger"

// BreakerFull notes that a circuit breaker refused a pick: of the member's
// leaves, the one that is full.
func (es *Events) BreakerFull(m *ledger.Cluster) {
	for _, l := range m.Leaves {
		if !l.Counters.Breaker.Filled(l.Cluster.MaxRequests) {
			continue
		}
		name := l.Cluster.Name
		es.Add(Event{Type: EventBreakerOpened, Cluster: name, Says: "the circuit breaker is full: picks are refused"})
		es.log.Warn("circuit breaker opened", "cluster", name)
	}
}

// BreakerEased notes, after a lease ended or the limit changed, that a full
// circuit breaker has eased.
func (es *Events) BreakerEased(m *ledger.Cluster) {
	for _, l := range m.Leaves {
		if !l.Counters.Breaker.Eased(l.Cluster.MaxRequests) {
			continue
		}
		name := l.Cluster.Name
		es.Add(Event{Type: EventBreakerClosed, Cluster: name, Says: "the circuit breaker lets picks pass again"})
		es.log.Info("circuit breaker closed", "cluster", name)
	}
}
