package ledger

import (
	"iter"
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Outcomes counts how requests ended. The zero value has counted none.
type Outcomes struct{ success, failed, cancelled, expired atomic.Uint64 }

// Add counts an outcome.
func (c *Outcomes) Add(o policy.Outcome) { c.add(o, 1) }

func (c *Outcomes) add(o policy.Outcome, n uint64) {
	switch o {
	case policy.OutcomeSuccess:
		c.success.Add(n)
	case policy.OutcomeError:
		c.failed.Add(n)
	case policy.OutcomeCancelled:
		c.cancelled.Add(n)
	case policy.OutcomeExpired:
		c.expired.Add(n)
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
