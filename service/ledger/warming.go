package ledger

import (
	"context"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/overload"
)

const (
	// MaxBuiltAtOnce is how many targets one change may have whose trees are built at once. Those
	// of a larger one, such as what the store has at the start, are built by picks, or else one
	// after another in the background: until then they are warming.
	MaxBuiltAtOnce = 256
	// warmingBatch is how many trees are built between two pauses, which are as long as the builds,
	// and at least warmingPause.
	warmingBatch = 8
	warmingPause = 2 * time.Millisecond
	// warmingTimeout is how long a batch may delay the next one, and other bulk work: one target
	// never affects another.
	warmingTimeout = 100 * time.Millisecond
)

// warmer builds the trees of warming targets in the background. Each batch is bulk work.
type warmer struct {
	turns *overload.Turns // may be nil
	ctx   context.Context // ends with close
	close context.CancelFunc
	done  sync.WaitGroup

	mu      sync.Mutex // guards what follows
	waiting []*Target
	running bool
}

// add adds targets in the order in which they are built.
func (w *warmer) add(targets []*Target) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(targets) == 0 || w.ctx.Err() != nil {
		return
	}
	w.waiting = append(w.waiting, targets...)
	if !w.running {
		w.running = true
		w.done.Go(w.run)
	}
}

// take returns the targets that are built next. Without any, run ends.
func (w *warmer) take() []*Target {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(warmingBatch, len(w.waiting))
	if w.running = n > 0; !w.running {
		w.waiting = nil
		return nil
	}
	batch := w.waiting[:n:n]
	w.waiting = w.waiting[n:]
	return batch
}

func (w *warmer) run() {
	for {
		batch := w.take()
		if batch == nil {
			return
		}
		turn, err := w.turns.Begin(w.ctx, overload.TreeWork, "")
		if err != nil {
			return
		}
		begin := time.Now()
		ctx, cancel := context.WithTimeout(w.ctx, warmingTimeout)
		for i, t := range batch {
			_ = t.Channel.Build(ctx) // at the end of ctx, the tree is still being built
			batch[i] = nil
		}
		cancel()
		turn.End()
		select {
		case <-time.After(max(warmingPause, time.Since(begin))):
		case <-w.ctx.Done():
			return
		}
	}
}
