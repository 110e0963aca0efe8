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
	// CheckInterval is how often the monitor checks whether a shortage is over.
	CheckInterval = 250 * time.Millisecond
	// Calm is how long nothing may have failed until a shortage is over. It is longer
	// than [RetryPause] can be.
	Calm = 3 * time.Second
	// RetryPause is the mean pause before an operation that failed for a shortage is
	// tried again.
	RetryPause = time.Second
)

// Pause returns how long to wait before an operation that failed for a shortage is
// tried again: half of mean to one and a half, so that retries are spread.
func Pause(mean time.Duration) time.Duration {
	return mean/2 + time.Duration(rand.Float64()*float64(mean))
}

// Monitor knows which resources lbd lacks now. Its methods may be called from any
// goroutine, and on a nil Monitor, which knows of no shortage.
type Monitor struct {
	check func() error // fixed after NewMonitor

	mu        sync.Mutex // guards the rest
	lacking   map[Resource]*shortage
	watchers  map[*watcher]struct{}
	changes   int  // how many there were
	notifying bool // a goroutine calls the watchers
	timer     *time.Timer
	closed    bool
}

// State is a shortage that lasts.
type State struct {
	Resource Resource
	// Since is when the shortage was noticed.
	Since time.Time
	// Err is what the first operation failed with.
	Err error
}

// ProcessWide reports whether any operation may fail for the shortage.
func (s State) ProcessWide() bool {
	switch s.Resource {
	case LocalPorts, HeldConnections, APIConnections:
		return false
	default:
		return true
	}
}

// String describes the shortage in words.
func (s State) String() string { return s.Resource.Text() + ": " + s.Err.Error() }

type shortage struct {
	State

	last time.Time // when something failed
}

type watcher struct {
	notify  func([]State)
	changes int // of those that there were, how many it knows; guarded by the Monitor's mu
}

// NewMonitor returns a Monitor, which has to be closed. check tries whether what needs
// a descriptor works; nil opens a socket.
func NewMonitor(check func() error) *Monitor {
	if check == nil {
		check = openSocket
	}
	return &Monitor{check: check, lacking: make(map[Resource]*shortage), watchers: make(map[*watcher]struct{})}
}

// openSocket tries whether a socket can be opened.
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

// Report notes that an operation failed with err for lack of r.
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
	s := m.lacking[r]
	began := s == nil
	if began {
		s = &shortage{State: State{Resource: r, Since: now, Err: err}}
		m.lacking[r] = s
		m.changes++
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

// ReportIf notes that an operation failed, where err means a shortage, and reports
// whether it does.
func (m *Monitor) ReportIf(err error) bool {
	r, ok := Of(err)
	if ok {
		m.Report(r, err)
	}
	return ok
}

// recheck ends the shortages that are over.
func (m *Monitor) recheck() {
	r, fails := Of(m.check())
	m.mu.Lock()
	m.timer = nil
	if m.closed {
		m.mu.Unlock()
		return
	}
	now := time.Now()
	if s := m.lacking[r]; fails && s != nil {
		s.last = now
	}
	before := len(m.lacking)
	maps.DeleteFunc(m.lacking, func(_ Resource, s *shortage) bool { return now.Sub(s.last) >= Calm })
	ended := len(m.lacking) < before
	if ended {
		m.changes++
	}
	if len(m.lacking) > 0 {
		m.timer = time.AfterFunc(CheckInterval, m.recheck)
	}
	m.mu.Unlock()
	if ended {
		m.notify()
	}
}

// Current returns the shortages that last, by resource.
func (m *Monitor) Current() []State {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.current()
}

func (m *Monitor) current() []State {
	states := make([]State, 0, len(m.lacking))
	for _, s := range m.lacking {
		states = append(states, s.State)
	}
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Resource, b.Resource) })
	return states
}

// Short reports whether there is a shortage for which any operation may fail.
func (m *Monitor) Short() bool { return slices.ContainsFunc(m.Current(), State.ProcessWide) }

// Watch calls f with the shortages that last, at once where there are any, and
// whenever one has begun or ended; never twice at a time. f must not block. stop ends
// that; a call on its way may still come.
func (m *Monitor) Watch(f func([]State)) (stop func()) {
	if m == nil {
		return func() {}
	}
	w := &watcher{notify: f}
	m.mu.Lock()
	if w.changes = m.changes; len(m.lacking) > 0 {
		w.changes--
	}
	m.watchers[w] = struct{}{}
	m.mu.Unlock()
	m.notify()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, w)
	}
}

// notify calls the watchers that do not know the last change, unless another
// goroutine does so already.
func (m *Monitor) notify() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.notifying {
		return
	}
	m.notifying = true
	for {
		states := m.current()
		var due []*watcher
		for w := range m.watchers {
			if w.changes != m.changes {
				w.changes = m.changes
				due = append(due, w)
			}
		}
		if len(due) == 0 {
			m.notifying = false
			return
		}
		m.mu.Unlock()
		for _, w := range due {
			w.notify(states)
		}
		m.mu.Lock()
	}
}

// Close ends the checks. Nothing is noted afterwards, and no watcher called for it.
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
