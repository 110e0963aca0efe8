package outlierdetection

import (
	"sync"
	"testing"

	"github.com/lbd-dev/lbd/lb/policy"
)

// TestIntervalsLoseNothing: requests that end while intervals do are counted,
// each once.
func TestIntervalsLoseNothing(t *testing.T) {
	const callers, each = 4, 10_000
	var e endpoint
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				e.Finish(policy.OutcomeSuccess, policy.NoInfo)
				e.Finish(policy.OutcomeError, policy.NoInfo)
				e.Finish(policy.OutcomeCancelled, policy.NoInfo)
			}
		})
	}
	var successes, errs uint32
	for range each {
		o := outcomes(e.ended.Swap(0))
		successes += o.successes()
		errs += o.errors()
	}
	wg.Wait()
	o := outcomes(e.ended.Swap(0))
	if successes += o.successes(); successes != callers*each {
		t.Errorf("%d successes, want %d", successes, callers*each)
	}
	if errs += o.errors(); errs != callers*each {
		t.Errorf("%d errors, want %d", errs, callers*each)
	}
}
