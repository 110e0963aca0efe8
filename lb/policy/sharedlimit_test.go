package policy_test

import (
	"sync"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// TestSharedLimitShrinks: the goroutine that lowers a limit sees all requests that are, or will be, in flight above
// it.
func TestSharedLimitShrinks(t *testing.T) {
	counters := policy.NewCounters()
	counters.JoinFleet()
	c := counters.Acquire(resource.ServiceKey{Cluster: "orders"})
	l := c.SharedLimit()
	const high, low = 8, 2
	for range 2000 {
		l.Set(high, time.Minute, time.Hour)
		var picks sync.WaitGroup
		for range high {
			picks.Go(func() {
				if c.Hold(l.Limit()) && l.Exceeded(c.Breaker.InFlight()) {
					c.Unhold()
				}
			})
		}
		l.Set(low, time.Minute, time.Hour)
		seen := c.Breaker.InFlight()
		picks.Wait()
		if n := c.Breaker.InFlight(); n > max(low, seen) {
			t.Fatalf("%d in flight: %d were seen after the limit became %d", n, seen, low)
		}
		for c.Breaker.InFlight() > 0 {
			c.Unhold()
		}
	}
}

func TestSharedLimitAdmits(t *testing.T) {
	tests := []struct {
		name            string
		bound, deadline time.Duration
		ttl, now        time.Duration
		want            policy.Admission
	}{
		{"before it is set", 0, 0, time.Second, time.Hour, policy.Isolated},
		{"before the deadline", time.Second, time.Hour, time.Second, time.Minute, policy.Admitted},
		{"at the deadline", time.Second, time.Hour, time.Second, time.Hour, policy.Isolated},
		{"a longer ttl", time.Second, time.Hour, time.Second + 1, time.Minute, policy.NotBound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var l policy.SharedLimit
			l.Set(1, tt.bound, tt.deadline)
			if got := l.Admits(tt.ttl, tt.now); got != tt.want {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
	var l policy.SharedLimit
	l.Ask(2)
	l.Ask(1)
	if a, b := l.TakeLongest(), l.TakeLongest(); a != 2 || b != 0 {
		t.Errorf("longest %v, then %v", a, b)
	}
}
