package sources

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
)

const (
	// maxDecoding limits how many pushed bodies are decoded at a time: each may take
	// many times its size in memory.
	maxDecoding = 2
	// MaxWaitingPushes limits how many more pushes wait for their turn.
	MaxWaitingPushes = 64
)

// bodyLimiter limits how many bodies are decoded at a time.
type bodyLimiter struct {
	slots   chan struct{}
	waiting atomic.Int64
}

func newBodyLimiter() *bodyLimiter { return &bodyLimiter{slots: make(chan struct{}, maxDecoding)} }

// acquire waits for a slot, which release frees.
func (l *bodyLimiter) acquire(ctx context.Context) error {
	select {
	case l.slots <- struct{}{}:
		return nil
	default:
	}
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) > MaxWaitingPushes {
		e := fault.Errorf(fault.RateLimited, "limit of waiting pushes reached (%d)", MaxWaitingPushes)
		e.RetryAfter = time.Second
		return e
	}
	select {
	case l.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.FromContext(ctx.Err())
	}
}

func (l *bodyLimiter) release() { <-l.slots }
