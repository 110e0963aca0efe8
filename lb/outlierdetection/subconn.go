package outlierdetection

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// subConn is a SubConn that can be ejected with its endpoint. While it is, the
// SubConn's policy hears that it failed, and of nothing that it does.
type subConn struct {
	balancer.SubConn

	// address is the connected one; nil where the SubConn's policy was not told
	// that it is READY. It is kept here so that a pick has no further to go than
	// to a SubConn that nobody can eject.
	address atomic.Pointer[string]
	// endpoint is nil while nothing is detected, and where the config has no
	// such endpoint.
	endpoint atomic.Pointer[endpoint]

	// Fixed after build.
	policy *outlierDetection
	value  *resource.Endpoint // that it was made for
	// partial is true for a SubConn to some of the endpoint's addresses, as grpc's
	// pick_first makes them: its policy has to know which address fails, so as to
	// try the next one.
	partial  bool
	listener func(balancer.SubConnState)

	// Owner only. real is the SubConn's own state, and err why; told is the
	// state that its policy heard last.
	index int // in the policy's subConns
	real  connectivity.State
	err   error
	told  connectivity.State
}

// Ready returns the address that is connected. One that is ejected has none, from
// the moment of the ejection on.
func (s *subConn) Ready() (string, bool) {
	if a := s.address.Load(); a != nil {
		return *a, true
	}
	return "", false
}

// ejection is why the SubConn is ejected; nil where it is not.
func (s *subConn) ejection() *policy.EjectedError {
	if e := s.endpoint.Load(); e != nil {
		return e.ejection
	}
	return nil
}

// heard takes the SubConn's own state. One that is ejected is kept connected, so
// that picks can reach it as soon as it is given back.
func (s *subConn) heard(state balancer.SubConnState) {
	s.real, s.err = state.ConnectivityState, state.ConnectionError
	why := s.ejection()
	if s.real == connectivity.Shutdown {
		s.policy.leave(s)
		why = nil
	}
	switch {
	case why == nil, s.partial && s.real != connectivity.Ready:
		s.tell(state)
	case s.told != connectivity.TransientFailure: // made for an ejected endpoint
		s.eject(why)
	}
	if why != nil && s.real == connectivity.Idle && !s.partial {
		s.Connect()
	}
}

// eject lets the SubConn's policy hear that it failed because of why. A partial one
// that is not READY gets no picks anyway, and goes on as it is.
func (s *subConn) eject(why *policy.EjectedError) {
	if s.partial && s.real != connectivity.Ready {
		return
	}
	s.tell(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: why})
}

// giveBack lets the SubConn's policy hear how the SubConn is.
func (s *subConn) giveBack() {
	s.tell(balancer.SubConnState{ConnectivityState: s.real, ConnectionError: s.err})
}

// tell lets the SubConn's policy hear state.
func (s *subConn) tell(state balancer.SubConnState) {
	s.told = state.ConnectivityState
	s.address.Store(s.connected())
	if s.listener != nil {
		s.listener(state)
	}
}

// connected is the address at which a pick can reach the SubConn, as its policy
// was told, or nil. One that cannot be asked is connected at its first.
func (s *subConn) connected() *string {
	if s.told != connectivity.Ready {
		return nil
	}
	own, ok := s.SubConn.(policy.SubConn)
	if !ok {
		return &s.value.Addresses[0]
	}
	if a, ok := own.Ready(); ok {
		return &a
	}
	return nil // lost since: it will be told
}
