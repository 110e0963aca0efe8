package service

import (
	"maps"
	"sync"
	"sync/atomic"
)

// tally counts by a key of a few values, which are known beforehand: a new one
// costs a copy. Counting takes no lock once the key is known. The zero tally is empty.
type tally[K comparable] struct {
	counts atomic.Pointer[map[K]*atomic.Uint64] // replaced, never changed
	mu     sync.Mutex                           // held to replace counts
}

// add counts one of k.
func (t *tally[K]) add(k K) { t.counter(k).Add(1) }

func (t *tally[K]) counter(k K) *atomic.Uint64 {
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

// read returns every count.
func (t *tally[K]) read() map[K]uint64 {
	out := make(map[K]uint64)
	if m := t.counts.Load(); m != nil {
		for k, n := range *m {
			out[k] = n.Load()
		}
	}
	return out
}

// each calls f with every count.
func (t *tally[K]) each(f func(k K, n uint64)) {
	if m := t.counts.Load(); m != nil {
		for k, n := range *m {
			f(k, n.Load())
		}
	}
}

// total is the sum of every count.
func (t *tally[K]) total() uint64 {
	sum := uint64(0)
	if m := t.counts.Load(); m != nil {
		for _, n := range *m {
			sum += n.Load()
		}
	}
	return sum
}
