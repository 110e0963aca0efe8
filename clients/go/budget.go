package lbdclient

import "sync/atomic"

// budget limits the retries of a cluster, as in gRFC A6. It counts in tenths of a token.
type budget struct {
	first  int64 // max at first
	max    atomic.Int64
	tokens atomic.Int64
}

func (b *budget) init(maxTokens float64) {
	b.first = int64(maxTokens * 10)
	b.max.Store(b.first)
	b.tokens.Store(b.first)
}

// fit makes the budget fit batches of n picks: the first size is for those of firstBatch.
func (b *budget) fit(n int) {
	size := b.first * int64(max(n, firstBatch)) / firstBatch
	b.tokens.Add(max(0, size-b.max.Swap(size)))
}

// failed takes a token, and reports whether a retry is permitted.
func (b *budget) failed() bool {
	for {
		old := b.tokens.Load()
		left := max(0, old-10)
		if b.tokens.CompareAndSwap(old, left) {
			return 2*left > b.max.Load()
		}
	}
}

// succeeded adds a tenth of a token.
func (b *budget) succeeded() {
	for {
		old := b.tokens.Load()
		if old >= b.max.Load() || b.tokens.CompareAndSwap(old, old+1) {
			return
		}
	}
}
