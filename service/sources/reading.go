package sources

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
)

const (
	// maxReading is how many pushed bodies are read at a time: each may take
	// many times its size until it is judged.
	maxReading = 2
	// MaxWaitingPushes is how many more pushes wait for their turn.
	MaxWaitingPushes = 64
)

// reading lets a few bodies be read at a time.
type reading struct {
	turns   chan struct{}
	waiting atomic.Int64
}

func newReading() *reading { return &reading{turns: make(chan struct{}, maxReading)} }

// enter waits for a turn, which leave gives back.
func (r *reading) enter(ctx context.Context) error {
	select {
	case r.turns <- struct{}{}:
		return nil
	default:
	}
	defer r.waiting.Add(-1)
	if r.waiting.Add(1) > MaxWaitingPushes {
		e := fault.Errorf(fault.RateLimited, "%d pushes wait to be read, the most that may", MaxWaitingPushes)
		e.RetryAfter = time.Second
		return e
	}
	select {
	case r.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.FromContext(ctx.Err())
	}
}

func (r *reading) leave() { <-r.turns }
