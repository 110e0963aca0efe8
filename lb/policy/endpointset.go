package policy

import (
	"fmt"
	"math/bits"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/xds/resource"
)

// EndpointSet keeps one SubConn for each endpoint of a config, and counts them by
// state. T is what the policy keeps for each endpoint. All of it belongs to the owner.
type EndpointSet[T any] struct {
	// Order has the endpoints in the config's order.
	Order []*Member[T]
	// Census counts the members by State, and Counted by Counted.
	Census, Counted Census
	// Lazy: only endpoints that have failed are reconnected (gRFC A62), others by
	// Connect. Otherwise every IDLE endpoint is connected, and counted as CONNECTING.
	// It is set before Update.
	Lazy bool

	conn    *Conn
	changed func(m *Member[T], from, counted connectivity.State)
	// byAddress has each endpoint by its lowest address, which does not depend on
	// their order.
	byAddress map[string]*Member[T]
}

// Member is one endpoint and its SubConn.
type Member[T any] struct {
	Value   *resource.Endpoint
	SubConn balancer.SubConn
	// State is the SubConn's state; SHUTDOWN once the endpoint is removed. Counted is
	// the state as the policy counts it: TRANSIENT_FAILURE lasts until READY.
	State, Counted connectivity.State
	// LastErr is the last connection error since it was READY.
	LastErr error
	// Own belongs to the policy.
	Own T

	kept bool // in the config being applied
}

// NewEndpointSet returns an empty set. It calls changed after each change of a
// SubConn's state, with m's State and Counted before.
func NewEndpointSet[T any](conn *Conn, changed func(m *Member[T], from, counted connectivity.State)) *EndpointSet[T] {
	return &EndpointSet[T]{conn: conn, changed: changed, byAddress: make(map[string]*Member[T])}
}

// Update applies the endpoints of a config. An endpoint stays the same while its
// addresses do, in any order (gRFC A61); of duplicates the first counts. changed
// reports whether picks see a difference. Endpoints whose SubConn cannot be made are
// left out; the error is the first of theirs.
func (s *EndpointSet[T]) Update(endpoints []resolver.Endpoint) (changed bool, err error) {
	for _, m := range s.byAddress {
		m.kept = false
	}
	order := make([]*Member[T], 0, len(endpoints))
	var fresh []*Member[T]
	for _, re := range endpoints {
		if len(re.Addresses) == 0 {
			continue
		}
		value := EndpointOf(re)
		m := s.byAddress[slices.Min(value.Addresses)]
		switch {
		case m != nil && m.kept:
			continue
		case m != nil && m.Value == value:
		case m != nil && SameAddresses(m.Value.Addresses, value.Addresses):
			changed = changed || m.State == connectivity.Ready // pickers hold the value
			if m.Value.Hostname != value.Hostname || !slices.Equal(m.Value.Addresses, value.Addresses) {
				m.SubConn.UpdateAddresses(re.Addresses) // with the name that TLS verifies
			}
			m.Value = value
		default:
			if m != nil {
				s.remove(m)
			}
			var refused error
			if m, refused = s.add(re.Addresses, value); refused != nil {
				if err == nil {
					err = refused
				}
				continue
			}
			fresh = append(fresh, m)
		}
		m.kept = true
		order = append(order, m)
	}
	for _, m := range s.byAddress {
		if !m.kept {
			s.remove(m)
		}
	}
	changed = changed || !slices.Equal(s.Order, order)
	s.Order = order
	if !s.Lazy {
		s.connect(fresh)
	}
	return changed, err
}

// connect begins at a random endpoint, so that clients with the same list do not all
// connect to the first one at once.
func (s *EndpointSet[T]) connect(fresh []*Member[T]) {
	if len(fresh) == 0 {
		return
	}
	start, _ := bits.Mul64(s.conn.Draw()(), uint64(len(fresh)))
	for i := range fresh {
		fresh[(int(start)+i)%len(fresh)].SubConn.Connect()
	}
}

func (s *EndpointSet[T]) add(addrs []resolver.Address, value *resource.Endpoint) (*Member[T], error) {
	m := &Member[T]{Value: value, State: connectivity.Idle, Counted: connectivity.Idle}
	sc, err := s.conn.NewSubConn(addrs, balancer.NewSubConnOptions{
		StateListener: func(state balancer.SubConnState) { s.subConnState(m, state) },
	})
	if err != nil {
		return nil, fmt.Errorf("new SubConn for %s: %w", value.Addresses[0], err)
	}
	m.SubConn = sc
	if !s.Lazy {
		m.Counted = connectivity.Connecting
	}
	s.byAddress[slices.Min(value.Addresses)] = m
	s.Census.Count(m.State, 1)
	s.Counted.Count(m.Counted, 1)
	return m, nil
}

func (s *EndpointSet[T]) remove(m *Member[T]) {
	delete(s.byAddress, slices.Min(m.Value.Addresses))
	s.Census.Count(m.State, -1)
	s.Counted.Count(m.Counted, -1)
	m.State, m.Counted = connectivity.Shutdown, connectivity.Shutdown
	m.SubConn.Shutdown()
}

// Connect connects an IDLE endpoint and counts it as CONNECTING. It reports false for
// any other.
func (s *EndpointSet[T]) Connect(m *Member[T]) bool {
	if m.Counted != connectivity.Idle {
		return false
	}
	s.count(m, connectivity.Connecting)
	m.SubConn.Connect()
	return true
}

func (s *EndpointSet[T]) subConnState(m *Member[T], state balancer.SubConnState) {
	if m.State == connectivity.Shutdown || state.ConnectivityState == connectivity.Shutdown {
		return
	}
	from, counted := m.State, m.Counted
	m.State = state.ConnectivityState
	s.Census.Count(from, -1)
	s.Census.Count(m.State, 1)

	switch m.State {
	case connectivity.Ready:
		m.LastErr = nil
	case connectivity.TransientFailure:
		m.LastErr = state.ConnectionError
		s.conn.ResolveNow(resolver.ResolveNowOptions{})
	case connectivity.Idle:
		if state.ConnectionError != nil {
			m.LastErr = state.ConnectionError
		}
		if !s.Lazy || counted == connectivity.TransientFailure {
			m.SubConn.Connect()
		}
	}
	switch {
	case counted == connectivity.TransientFailure && m.State != connectivity.Ready:
	case !s.Lazy && m.State == connectivity.Idle:
		s.count(m, connectivity.Connecting)
	default:
		s.count(m, m.State)
	}
	s.changed(m, from, counted)
}

func (s *EndpointSet[T]) count(m *Member[T], state connectivity.State) {
	s.Counted.Count(m.Counted, -1)
	s.Counted.Count(state, 1)
	m.Counted = state
}

// Close shuts every SubConn down, and ignores them from then on.
func (s *EndpointSet[T]) Close() {
	for _, m := range s.byAddress {
		s.remove(m)
	}
}

// Describe describes every endpoint, in the config's order.
func (s *EndpointSet[T]) Describe() []EndpointNode {
	nodes := make([]EndpointNode, len(s.Order))
	for i, m := range s.Order {
		nodes[i] = EndpointNode{
			Endpoint:   m.Value,
			State:      m.State,
			InRotation: m.State == connectivity.Ready,
			LastErr:    m.LastErr,
		}
		if sc, ok := m.SubConn.(SubConn); ok {
			nodes[i].Address, _ = sc.Ready()
		}
	}
	return nodes
}

// Best returns the best state, in gRPC's order: READY, CONNECTING, IDLE,
// TRANSIENT_FAILURE, which is also the state without endpoints.
func (c Census) Best() connectivity.State {
	switch {
	case c.Ready > 0:
		return connectivity.Ready
	case c.Connecting > 0:
		return connectivity.Connecting
	case c.Idle > 0:
		return connectivity.Idle
	default:
		return connectivity.TransientFailure
	}
}

// Count adds n endpoints that are in state s.
func (c *Census) Count(s connectivity.State, n int) {
	switch s {
	case connectivity.Ready:
		c.Ready += n
	case connectivity.Connecting:
		c.Connecting += n
	case connectivity.Idle:
		c.Idle += n
	case connectivity.TransientFailure:
		c.TransientFailure += n
	}
}
