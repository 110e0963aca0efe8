package lbdclient

import "sync/atomic"

// budget limits the retries of a cluster, as in gRFC A6. It counts in tenths of a token.
type budget struct {
	max    int64
	tokens atomic.Int64
}

func (b *budget) init(maxTokens float64) {
	b.max = int64(maxTokens * 10)
	b.tokens.Store(b.max)
}

// failed takes a token, and reports whether a retry is permitted.
func (b *budget) failed() bool {
	for {
		old := b.tokens.Load()
		left := max(0, old-10)
		if b.tokens.CompareAndSwap(old, left) {
			return 2*left > b.max
		}
	}
}

// succeeded adds a tenth of a token.
func (b *budget) succeeded() {
	for {
		old := b.tokens.Load()
		if old >= b.max || b.tokens.CompareAndSwap(old, old+1) {
			return
		}
	}
}
