package lb_test

import (
	"errors"
	"slices"
	"sync"

	"github.com/lbd-dev/lbd/lb"
)

// switchboard is a Connector whose endpoints are up or down as a test says. An
// endpoint without an entry is neither: attempts wait.
type switchboard struct {
	mu       sync.Mutex
	up       map[string]bool
	why      error          // what attempts fail with
	links    []*link        // in the order of their start
	attempts map[string]int // by an endpoint's first address
}

type link struct {
	addresses []string
	report    func(lb.Connection)
	connected string
}

var errRefused = errors.New("connection refused")

func newSwitchboard() *switchboard {
	return &switchboard{up: map[string]bool{}, why: errRefused, attempts: map[string]int{}}
}

// Start answers at once where the test has said how the endpoint is.
func (s *switchboard) Start(addresses []string, report func(lb.Connection)) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &link{addresses: addresses, report: report}
	s.links = append(s.links, l)
	s.attempts[addresses[0]]++
	s.settle(l)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(l)
	}
}

func (s *switchboard) forget(l *link) {
	s.links = slices.DeleteFunc(s.links, func(o *link) bool { return o == l })
}

func (s *switchboard) settle(l *link) {
	if l.connected != "" {
		if !s.up[l.connected] {
			s.forget(l)
			l.report(lb.Connection{Err: s.why})
		}
		return
	}
	known := true
	for _, a := range l.addresses {
		up, ok := s.up[a]
		if up {
			l.connected = a
			l.report(lb.Connection{Address: a})
			return
		}
		known = known && ok
	}
	if known {
		s.forget(l)
		l.report(lb.Connection{Address: l.addresses[len(l.addresses)-1], Err: s.why})
	}
}

// set says that the endpoints are up or down from now on.
func (s *switchboard) set(up bool, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range addresses {
		s.up[a] = up
	}
	for _, l := range slices.Clone(s.links) {
		s.settle(l)
	}
}

// lose cuts the connections to an endpoint; attempts at it wait until set says
// more.
func (s *switchboard) lose(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.up, address)
	for _, l := range slices.Clone(s.links) {
		if l.connected == address {
			s.forget(l)
			l.report(lb.Connection{Err: s.why})
		}
	}
}

// open counts the attempts and connections that are not canceled.
func (s *switchboard) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links)
}

// attempted counts the attempts at an endpoint.
func (s *switchboard) attempted(address string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[address]
}
