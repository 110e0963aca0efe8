package ledger

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Tally counts by a key of a few values, which are known beforehand: a new one
// costs a copy. Counting takes no lock once the key is known. The zero tally is empty.
type Tally[K comparable] struct {
	counts atomic.Pointer[map[K]*atomic.Uint64] // replaced, never changed
	mu     sync.Mutex                           // held to replace counts
}

// Add counts one of k.
func (t *Tally[K]) Add(k K) { t.counter(k).Add(1) }

func (t *Tally[K]) counter(k K) *atomic.Uint64 {
	if m := t.counts.Load(); m != nil {
		if n := (*m)[k]; n != nil {
			return n
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	grown := make(map[K]*atomic.Uint64)
	if m := t.counts.Load(); m != nil {
		if n := (*m)[k]; n != nil {
			return n
		}
		maps.Copy(grown, *m)
	}
	n := new(atomic.Uint64)
	grown[k] = n
	t.counts.Store(&grown)
	return n
}

// Read returns every count.
func (t *Tally[K]) Read() map[K]uint64 {
	out := make(map[K]uint64)
	if m := t.counts.Load(); m != nil {
		for k, n := range *m {
			out[k] = n.Load()
		}
	}
	return out
}

// Each calls f with every count.
func (t *Tally[K]) Each(f func(k K, n uint64)) {
	if m := t.counts.Load(); m != nil {
		for k, n := range *m {
			f(k, n.Load())
		}
	}
}

// Total is the sum of every count.
func (t *Tally[K]) Total() uint64 {
	sum := uint64(0)
	if m := t.counts.Load(); m != nil {
		for _, n := range *m {
			sum += n.Load()
		}
	}
	return sum
}
