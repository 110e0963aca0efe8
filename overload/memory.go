package overload

import (
	"context"
	"fmt"
	"math"
	"runtime/metrics"
	"slices"
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
)

// MemoryBudget is the budget of bytes that requests take while they are served: what bodies and answers take, and what it
// takes to compute them; and of those that resources of sources take until they are in use. It is what the memory limit
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
	released    int64    // since the last collection: garbage, or data by now
	data        int64    // as of the last collection, without what is reserved
	collections uint64   // when data was computed
	waiting     []waiter // in the order of their first tries

	refused, refusedSources uint64
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
	err := m.reserve(n, own, "")
	if err != nil {
		m.refused++
	}
	return err
}

// ReserveSource is Reserve for a source, which is the name of what it decodes together. If that does not fit, the source
// tries again within [Calm]: meanwhile, requests and sources that came later leave it what it needs.
func (m *MemoryBudget) ReserveSource(source string, n int64) error {
	if m == nil || n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.reserve(n, 0, source)
	i := m.waiter(source)
	switch {
	case err == nil && i >= 0:
		m.waiting = slices.Delete(m.waiting, i, i+1)
	case err == nil:
	case i >= 0:
		m.waiting[i].bytes, m.waiting[i].until = n, time.Now().Add(Calm)
	default:
		m.waiting = append(m.waiting, waiter{source, n, time.Now().Add(Calm)})
		m.refusedSources++
	}
	return err
}

// waiter is a source that waits for memory, until it has tried again.
type waiter struct {
	source string
	bytes  int64
	until  time.Time
}

// waiter returns where a source waits, or -1. It is called under mu.
func (m *MemoryBudget) waiter(source string) int {
	return slices.IndexFunc(m.waiting, func(w waiter) bool { return w.source == source })
}

// awaited returns what the sources before one wait for, and others leave: of all of them for a request, whose source is
// empty; and no more than the data leaves. It is called under mu.
func (m *MemoryBudget) awaited(source string) (bytes int64) {
	now := time.Now()
	m.waiting = slices.DeleteFunc(m.waiting, func(w waiter) bool { return now.After(w.until) })
	for _, w := range m.waiting {
		if w.source == source {
			break
		}
		if m.data+bytes+w.bytes <= m.limit {
			bytes += w.bytes
		}
	}
	return bytes
}

// reserve reserves n bytes if they fit beside those that others wait for. It is called under mu.
func (m *MemoryBudget) reserve(n, own int64, source string) error {
	m.measure()
	awaited := m.awaited(source)
	// The first try of a source finds what of the data has become garbage; after it, only what was released can help.
	again := m.waiter(source) >= 0 && (m.released == 0 || m.data+n > m.limit)
	if !m.fits(n+awaited) && !again { // data, and what was released, may have become garbage
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
		awaited = m.awaited(source)
	}
	if !m.fits(n + awaited) {
		return &MemoryError{own + n, m.limit, m.data, m.reserved + m.released + awaited - own}
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

// Reserved returns how many bytes are reserved, how many reservations of requests were refused, and how often a source had
// to wait.
func (m *MemoryBudget) Reserved() (bytes int64, requests, sources uint64) {
	if m == nil {
		return 0, 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reserved, m.refused, m.refusedSources
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
