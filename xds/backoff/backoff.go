// Package backoff is the back-off of gRPC's connections and xDS streams.
package backoff

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/backoff"
)

// Wait returns how long to wait after so many retries failed before: 1 s, times 1.6 for each
// retry, at most 2 min, with 20 % jitter after the first time. draw returns it, in [0, 1).
func Wait(retries int, draw func() float64) time.Duration {
	c := backoff.DefaultConfig
	if retries == 0 {
		return c.BaseDelay
	}
	wait := min(float64(c.BaseDelay)*math.Pow(c.Multiplier, float64(retries)), float64(c.MaxDelay))
	return time.Duration(wait * (1 + c.Jitter*(2*draw()-1)))
}

// Sleep waits. It reports false, at once, if ctx ends before.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
