package overload

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	// CheckInterval is the interval of checks during a shortage.
	CheckInterval = 250 * time.Millisecond
	// Calm is the time without a failure after which a shortage ends. It exceeds every
	// pause of [Pause] with [RetryPause].
	Calm = 3 * time.Second
	// RetryPause is the mean pause before a retry during a shortage.
	RetryPause = time.Second
)

// Pause returns a random pause before a retry, from 0.5 to 1.5 times the mean.
func Pause(mean time.Duration) time.Duration {
	return mean/2 + time.Duration(rand.Float64()*float64(mean))
}

// Monitor tracks the current shortages. Its methods are safe for concurrent use. A nil
// Monitor never has a shortage.
type Monitor struct {
	check func() error // fixed after NewMonitor

	mu        sync.Mutex // guards the rest
	shortages map[Resource]*shortage
	watchers  map[*watcher]struct{}
	pending   []*watcher // to be called with the current shortages
	notifying bool       // a goroutine calls them
	timer     *time.Timer
	closed    bool
}

// State is a current shortage.
type State struct {
	Resource Resource
	Since    time.Time // time of the first failure
	Err      error     // of the first failure
}

// ProcessWide reports whether the shortage can affect all operations.
func (s State) ProcessWide() bool {
	switch s.Resource {
	case LocalPorts, HeldConnections, APIConnections, MemoryLimit, SourceMemory, CPU:
		return false
	default:
		return true
	}
}

// String describes the shortage with its error.
func (s State) String() string { return s.Resource.Text() + ": " + s.Err.Error() }

type shortage struct {
	State

	last time.Time // of the last failure
}

type watcher struct{ notify func([]State) }

// NewMonitor returns a Monitor. The caller closes it. check tests whether a descriptor can
// be opened; nil opens a socket.
func NewMonitor(check func() error) *Monitor {
	if check == nil {
		check = openSocket
	}
	return &Monitor{check: check, shortages: make(map[Resource]*shortage), watchers: make(map[*watcher]struct{})}
}

// openSocket opens a socket and closes it.
func openSocket() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if errors.Is(err, syscall.EAFNOSUPPORT) {
		fd, err = syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM, 0)
	}
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}

// Report records that a shortage of r caused err.
func (m *Monitor) Report(r Resource, err error) {
	if m == nil {
		return
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	now := time.Now()
	s := m.shortages[r]
	began := s == nil
	if began {
		s = &shortage{State: State{Resource: r, Since: now, Err: err}}
		m.shortages[r] = s
		m.changed()
		if m.timer == nil {
			m.timer = time.AfterFunc(CheckInterval, m.recheck)
		}
	}
	s.last = now
	m.mu.Unlock()
	if began {
		m.notify()
	}
}

// ReportIf records err, of an operation on a socket, if a shortage caused it, and reports whether it
// did.
func (m *Monitor) ReportIf(err error) bool {
	r, ok := OfSocket(err)
	if ok {
		m.Report(r, err)
	}
	return ok
}

// recheck ends the shortages without a recent failure.
func (m *Monitor) recheck() {
	r, fails := OfSocket(m.check())
	m.mu.Lock()
	m.timer = nil
	if m.closed {
		m.mu.Unlock()
		return
	}
	now := time.Now()
	if s := m.shortages[r]; fails && s != nil {
		s.last = now
	}
	before := len(m.shortages)
	maps.DeleteFunc(m.shortages, func(_ Resource, s *shortage) bool { return now.Sub(s.last) >= Calm })
	ended := len(m.shortages) < before
	if ended {
		m.changed()
	}
	if len(m.shortages) > 0 {
		m.timer = time.AfterFunc(CheckInterval, m.recheck)
	}
	m.mu.Unlock()
	if ended {
		m.notify()
	}
}

// Current returns the current shortages, by resource.
func (m *Monitor) Current() []State {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current()
}

func (m *Monitor) current() []State {
	states := make([]State, 0, len(m.shortages))
	for _, s := range m.shortages {
		states = append(states, s.State)
	}
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Resource, b.Resource) })
	return states
}

// Short reports whether there is a shortage that can affect all operations.
func (m *Monitor) Short() bool { return slices.ContainsFunc(m.Current(), State.ProcessWide) }

// Watch calls f with the current shortages, first if there are any, and then after each
// change; one call at a time. f must not block. After stop, a call that has begun may still
// finish.
func (m *Monitor) Watch(f func([]State)) (stop func()) {
	if m == nil {
		return func() {}
	}
	w := &watcher{notify: f}
	m.mu.Lock()
	m.watchers[w] = struct{}{}
	short := len(m.shortages) > 0
	if short {
		m.pending = append(m.pending, w)
	}
	m.mu.Unlock()
	if short {
		m.notify()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, w)
	}
}

// changed makes all watchers pending. The caller holds mu, and calls notify after unlocking it.
func (m *Monitor) changed() { m.pending = slices.Collect(maps.Keys(m.watchers)) }

// notify calls the pending watchers, unless another goroutine is doing so.
func (m *Monitor) notify() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.notifying {
		return
	}
	m.notifying = true
	for len(m.pending) > 0 {
		due := slices.DeleteFunc(m.pending, func(w *watcher) bool {
			_, watching := m.watchers[w]
			return !watching // it was stopped
		})
		states := m.current()
		m.pending = nil
		m.mu.Unlock()
		for _, w := range due {
			w.notify(states)
		}
		m.mu.Lock()
	}
	m.notifying = false
}

// Close ends the checks, and ignores later reports.
func (m *Monitor) Close() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	if m.timer != nil {
		m.timer.Stop()
	}
}
