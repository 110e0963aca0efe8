package overload

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// budgetedMemory is the part of the memory limit that data and requests may take together: the collector needs
	// room to work in.
	budgetedMemory = 0.9
	// collectPause is the minimum time between two collections that requests wait for, in times of how long the last
	// one took: they must not keep the CPUs busy.
	collectPause = 4
	// maxAwait is how long a source waits for memory that the data does not leave.
	maxAwait = 30 * time.Second
)

// MemoryBudget is the budget of bytes that requests take while they are served: what bodies and answers take, and what it
// takes to compute them; and of those that resources of sources take until they are decoded. It is what the memory limit
// leaves beside the data, so that accepted data and requests never take more together. Its methods are safe for
// concurrent use. A nil MemoryBudget has no limit.
type MemoryBudget struct {
	// Fixed after NewMemoryBudget.
	limit   int64
	live    func() (bytes, collections uint64)
	collect func()

	collecting  sync.Mutex // guards nextCollect, and is held while garbage is collected
	nextCollect time.Time  // when collect may be called

	mu          sync.Mutex // guards the rest
	reserved    int64
	released    int64  // since the last collection: garbage, or data by now
	data        int64  // as of the last collection, without what is reserved
	collections uint64 // when data was computed
	refused     uint64
	awaited     int64 // what a source waits for, and requests leave
}

// MemoryError is why a reservation is refused.
type MemoryError struct{ bytes, limit, data, others int64 }

// Never reports whether the data leaves too little even if there is no other request.
func (e *MemoryError) Never() bool { return e.bytes+e.data > e.limit }

func (e *MemoryError) Error() string {
	rest := fmt.Sprintf(", and other requests, with those that have just ended, %d", e.others>>20)
	if e.Never() {
		rest = ": a retry does not help, lbd needs more memory"
	}
	return fmt.Sprintf("takes about %d MiB, and of the %d MiB that lbd may use (GOMEMLIMIT) data takes %d%s",
		e.bytes>>20, e.limit>>20, e.data>>20, rest)
}

// NewMemoryBudget returns the budget within a memory limit; nil for math.MaxInt64, which is none. live is
// [LiveMemory], and collect collects garbage.
func NewMemoryBudget(limit int64, live func() (bytes, collections uint64), collect func()) *MemoryBudget {
	if limit == math.MaxInt64 {
		return nil
	}
	return &MemoryBudget{limit: int64(budgetedMemory * float64(limit)), live: live, collect: collect}
}

// LiveMemory returns a function that returns the memory that cannot be freed, as of the last garbage collection, and
// the number of collections.
func LiveMemory() func() (bytes, collections uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/cycles/total:gc-cycles"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"},
		{Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/other:bytes"},
	}
	return func() (bytes, collections uint64) {
		metrics.Read(samples)
		for _, s := range samples[1:] {
			bytes += s.Value.Uint64()
		}
		return bytes, samples[0].Value.Uint64()
	}
}

// Reserve reserves n bytes, besides own ones, which [MemoryBudget.Release] returns. The error is a *[MemoryError].
func (m *MemoryBudget) Reserve(n, own int64) error {
	if m == nil || n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.reserve(n, own, m.awaited)
	if err != nil {
		m.refused++
	}
	return err
}

// Await is Reserve for a source, which waits for n bytes: meanwhile, requests leave them. It calls waits each second, and
// fails after a while if the data leaves too little: with a *[MemoryError], or with the error of ctx.
func (m *MemoryBudget) Await(ctx context.Context, n int64, waits func(error)) error {
	if m == nil || n == 0 {
		return nil
	}
	for end := time.Now().Add(maxAwait); ; {
		m.mu.Lock()
		m.awaited = 0
		err := ctx.Err()
		if err == nil {
			err = m.reserve(n, 0, 0)
		}
		full, ok := errors.AsType[*MemoryError](err)
		if ok && !full.Never() {
			m.awaited = n
		}
		m.mu.Unlock()
		if !ok || full.Never() && time.Now().After(end) {
			return err
		}
		waits(err)
		select {
		case <-ctx.Done():
		case <-time.After(RetryPause):
		}
	}
}

// reserve reserves n bytes if they fit beside those that others wait for. It is called under mu.
func (m *MemoryBudget) reserve(n, own, awaited int64) error {
	m.measure()
	if !m.fits(n + awaited) { // data, and what was released, may have become garbage
		m.mu.Unlock()
		m.collecting.Lock() // others wait for the result
		if begin := time.Now(); !begin.Before(m.nextCollect) {
			m.collect()
			end := time.Now()
			m.nextCollect = end.Add(collectPause * end.Sub(begin))
		}
		m.collecting.Unlock()
		m.mu.Lock()
		m.measure()
	}
	if !m.fits(n + awaited) {
		return &MemoryError{own + n, m.limit, m.data, m.reserved + m.released - own}
	}
	m.reserved += n
	return nil
}

// Release returns n reserved bytes.
func (m *MemoryBudget) Release(n int64) {
	if m == nil || n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.measure()
	m.reserved -= n
	m.released += n
}

// fits is called under mu, as measure.
func (m *MemoryBudget) fits(n int64) bool { return m.data+m.reserved+m.released+n <= m.limit }

// measure computes data after a collection. It is called before reserved changes, so that reserved is what it was
// when the memory was collected: some, or all, of that was in use.
func (m *MemoryBudget) measure() {
	live, collections := m.live()
	if collections == m.collections {
		return
	}
	m.collections, m.released = collections, 0
	m.data = min(max(m.data, int64(live)-m.reserved), int64(live))
}

// Reserved returns how many bytes are reserved, and how many reservations were refused.
func (m *MemoryBudget) Reserved() (bytes int64, refused uint64) {
	if m == nil {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reserved, m.refused
}

type reserveKey struct{}

// WithReserve returns the context of a request, for which [Reserve] calls reserve.
func WithReserve(ctx context.Context, reserve func(bytes int64) error) context.Context {
	return context.WithValue(ctx, reserveKey{}, reserve)
}

// Reserve reserves, until the request of a context is answered, the bytes that the next step of it is about to
// take. An error refuses the request. Work that is not a request's has no limit.
func Reserve(ctx context.Context, bytes int) error {
	if reserve, ok := ctx.Value(reserveKey{}).(func(int64) error); ok && bytes > SmallWork {
		return reserve(int64(bytes))
	}
	return nil
}
