package ledger

import (
	"iter"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Outcomes counts how leases ended. The zero value has counted none.
type Outcomes struct{ success, failed, cancelled, expired atomic.Uint64 }

// Add counts an outcome.
func (c *Outcomes) Add(o policy.Outcome) {
	switch o {
	case policy.OutcomeSuccess:
		c.success.Add(1)
	case policy.OutcomeError:
		c.failed.Add(1)
	case policy.OutcomeCancelled:
		c.cancelled.Add(1)
	case policy.OutcomeExpired:
		c.expired.Add(1)
	}
}

// All yields the counts that are not 0.
func (c *Outcomes) All() iter.Seq2[policy.Outcome, uint64] {
	return func(yield func(policy.Outcome, uint64) bool) {
		for _, of := range []struct {
			outcome policy.Outcome
			count   *atomic.Uint64
		}{
			{policy.OutcomeSuccess, &c.success},
			{policy.OutcomeError, &c.failed},
			{policy.OutcomeCancelled, &c.cancelled},
			{policy.OutcomeExpired, &c.expired},
		} {
			if n := of.count.Load(); n > 0 && !yield(of.outcome, n) {
				return
			}
		}
	}
}
