package service

// breakerFull notes that a circuit breaker refused a pick: of the member's
// leaves, the one that is full.
func (s *Service) breakerFull(m *member) {
	for _, l := range m.leaves {
		// A picker from before the newest config may have refused by another limit.
		if l.counters.full.Load() || !l.breaker().Open || !l.counters.full.CompareAndSwap(false, true) {
			continue
		}
		name := l.Cluster.Name
		s.events.add(Event{Type: EventBreakerOpened, Cluster: name, Says: "the circuit breaker is full: picks are refused"})
		s.options.Logger.Warn("circuit breaker opened", "cluster", name)
	}
}

// breakerEased notes, after a lease ended or the limit changed, that a full
// circuit breaker has a fifth of its places free again: with less, one that is
// just at its limit would tell so with every request.
func (s *Service) breakerEased(m *member) {
	for _, l := range m.leaves {
		if !l.counters.full.Load() {
			continue
		}
		b := l.breaker()
		if b.Open || 5*b.InFlight > 4*int64(b.MaxRequests) || !l.counters.full.CompareAndSwap(true, false) {
			continue
		}
		name := l.Cluster.Name
		s.events.add(Event{Type: EventBreakerClosed, Cluster: name, Says: "the circuit breaker lets picks pass again"})
		s.options.Logger.Info("circuit breaker closed", "cluster", name)
	}
}
