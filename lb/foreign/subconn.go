package foreign

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// subConn wraps a SubConn of the tree. Any goroutine may call its methods; the owner
// runs them.
type subConn struct {
	balancer.SubConn // grpc wants it embedded; every method is overridden

	// Fixed after build.
	conn     *clientConn
	listener func(balancer.SubConnState)

	upstream  atomic.Pointer[policy.Upstream] // nil until it is made
	producers producers

	// Owner only.
	real     balancer.SubConn   // nil until it is made
	endpoint *resource.Endpoint // that it is a connection of
	number   int                // in the order in which they are made
	address  string             // the first
	place    int                // of the endpoint in the config; -1 for one that is not there
	state    connectivity.State
	lastErr  error
	health   int // how often a health listener was put in, or dropped
}

// open creates the tree's SubConn.
func (s *subConn) open(addrs []resolver.Address, opts balancer.NewSubConnOptions) {
	f := s.conn.policy
	if f.closed {
		s.producers.close()
		return
	}
	f.made++
	s.number = f.made
	f.subConns[s] = struct{}{}
	s.locate()
	f.changed()
	opts.StateListener = s.changed
	sc, err := s.conn.Conn.NewSubConn(addrs, opts)
	if err != nil {
		// In a batch of its own: a policy that retries at once must not block the
		// owner.
		s.conn.Post(func() {
			s.changed(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: err})
		})
		return
	}
	s.real = sc
	s.show()
}

// show makes picks use the endpoint as it is now.
func (s *subConn) show() {
	if s.real != nil {
		s.upstream.Store(policy.ConnectionOf(s.real).Replace(s.endpoint))
	}
}

// locate finds the endpoint of the config that s connects to.
func (s *subConn) locate() {
	address := s.address
	if connected, ok := s.connected(); ok {
		address = connected
	}
	e := &s.conn.policy.endpoints
	i, ok := e.byAddress[address]
	if !ok {
		s.place = -1
		return
	}
	s.place, s.endpoint = i, e.list[i]
	s.show()
}

// connected returns the address that is connected.
func (s *subConn) connected() (address string, ok bool) {
	if s.real == nil {
		return "", false
	}
	return policy.ConnectionOf(s.real).Ready()
}

// changed handles a state of the tree's SubConn, and reports it to the policy. As in
// grpc, no Producer and no health listener outlives a state.
func (s *subConn) changed(to balancer.SubConnState) {
	f := s.conn.policy
	if s.state == connectivity.Shutdown {
		return
	}
	s.state = to.ConnectivityState
	switch {
	case to.ConnectivityState == connectivity.Ready:
		s.lastErr = nil
		s.locate()
	case to.ConnectivityState == connectivity.Shutdown:
		delete(f.subConns, s)
	case to.ConnectionError != nil:
		s.lastErr = to.ConnectionError
	}
	s.health++
	f.changed()
	f.conn.calls.within(func() {
		s.producers.close()
		switch {
		case f.closed:
		case s.listener != nil:
			s.listener(to)
		default:
			f.inner.UpdateSubConnState(s, to)
		}
	})
}

// do makes the owner run f with the tree's SubConn.
func (s *subConn) do(f func(balancer.SubConn)) {
	s.conn.do(func() {
		if s.real != nil {
			f(s.real)
		}
	})
}

func (s *subConn) shutdown() {
	if s.real != nil {
		s.real.Shutdown()
		return
	}
	s.changed(balancer.SubConnState{ConnectivityState: connectivity.Shutdown})
}

func (s *subConn) Connect() { s.do(func(sc balancer.SubConn) { sc.Connect() }) }

func (s *subConn) Shutdown() { s.conn.do(s.shutdown) }

func (s *subConn) UpdateAddresses(addrs []resolver.Address) {
	s.do(func(sc balancer.SubConn) {
		sc.UpdateAddresses(addrs)
		if len(addrs) > 0 {
			s.address = addrs[0].Addr
			s.locate()
			s.conn.policy.changed()
		}
	})
}

// GetOrBuildProducer returns a Producer whose calls fail as UNIMPLEMENTED.
func (s *subConn) GetOrBuildProducer(b balancer.ProducerBuilder) (balancer.Producer, func()) {
	return s.producers.get(b)
}

// RegisterHealthListener makes f the health listener while the connection is READY;
// nil for none.
func (s *subConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	s.do(func(sc balancer.SubConn) {
		s.health++
		if f == nil {
			return
		}
		registered := s.health
		sc.RegisterHealthListener(func(to balancer.SubConnState) {
			if s.health == registered {
				s.conn.calls.within(func() { f(to) })
			}
		})
	})
}
