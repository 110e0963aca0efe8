package ledger

import (
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Reported counts requests that callers have reported, which had no leases. The zero value has counted
// none.
type Reported struct {
	Outcomes Tally[policy.Outcome]

	latency         atomic.Int64 // nanoseconds
	connectFailures atomic.Uint64
}

// Add counts reported requests with the sum of their durations.
func (r *Reported) Add(u *policy.Usage, latency time.Duration) {
	r.Outcomes.add(policy.OutcomeSuccess, uint64(u.Successes))
	r.Outcomes.add(policy.OutcomeError, uint64(u.Errors))
	r.Outcomes.add(policy.OutcomeCancelled, uint64(u.Cancelled))
	r.latency.Add(int64(latency))
	r.connectFailures.Add(uint64(u.ConnectFailures))
}

// Latency returns the sum of the durations.
func (r *Reported) Latency() time.Duration { return time.Duration(r.latency.Load()) }

// ConnectFailures returns the number of connects that failed.
func (r *Reported) ConnectFailures() uint64 { return r.connectFailures.Load() }
