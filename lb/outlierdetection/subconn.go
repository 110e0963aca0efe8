package outlierdetection

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// subConn is a SubConn that can be ejected with its endpoint. While it is, its policy
// sees it as failed.
type subConn struct {
	balancer.SubConn

	// address is the connected one; nil unless reported is READY. A pick reads it
	// without calling the SubConn.
	address atomic.Pointer[string]
	// endpoint is nil while nothing is detected, or if the config does not have it.
	endpoint atomic.Pointer[endpoint]

	// Fixed after build.
	policy *outlierDetection
	value  *resource.Endpoint // that it was made for
	// partial: it has only some of the endpoint's addresses, as grpc's pick_first
	// makes them. Its policy must see which address fails, to try the next one.
	partial  bool
	listener func(balancer.SubConnState)

	// Owner only. real is the SubConn's own state, and err its error; reported is the
	// last state that its policy has seen.
	index    int // in the policy's subConns
	real     connectivity.State
	err      error
	reported connectivity.State
}

// Ready returns the connected address. An ejected SubConn has none.
func (s *subConn) Ready() (string, bool) {
	if a := s.address.Load(); a != nil {
		return *a, true
	}
	return "", false
}

// ejection is why the SubConn is ejected, or nil.
func (s *subConn) ejection() *policy.EjectedError {
	if e := s.endpoint.Load(); e != nil {
		return e.ejection
	}
	return nil
}

// changed handles the SubConn's own state. An ejected SubConn stays connected, for
// picks after the ejection.
func (s *subConn) changed(state balancer.SubConnState) {
	s.real, s.err = state.ConnectivityState, state.ConnectionError
	why := s.ejection()
	if s.real == connectivity.Shutdown {
		s.policy.leave(s)
		why = nil
	}
	switch {
	case why == nil, s.partial && s.real != connectivity.Ready:
		s.report(state)
	case s.reported != connectivity.TransientFailure: // made for an ejected endpoint
		s.eject(why)
	}
	if why != nil && s.real == connectivity.Idle && !s.partial {
		s.Connect()
	}
}

// eject makes the SubConn fail for its policy. A partial one that is not READY gets no
// picks anyway.
func (s *subConn) eject(why *policy.EjectedError) {
	if s.partial && s.real != connectivity.Ready {
		return
	}
	s.report(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: why})
}

// uneject reports the SubConn's own state to its policy.
func (s *subConn) uneject() {
	s.report(balancer.SubConnState{ConnectivityState: s.real, ConnectionError: s.err})
}

// report reports state to the SubConn's policy.
func (s *subConn) report(state balancer.SubConnState) {
	s.reported = state.ConnectivityState
	s.address.Store(s.connected())
	if s.listener != nil {
		s.listener(state)
	}
}

// connected is the address for picks, or nil. A SubConn that is not lbd's is connected
// at its first.
func (s *subConn) connected() *string {
	if s.reported != connectivity.Ready {
		return nil
	}
	own, ok := s.SubConn.(policy.SubConn)
	if !ok {
		return &s.value.Addresses[0]
	}
	if a, ok := own.Ready(); ok {
		return &a
	}
	return nil // lost since: its state will follow
}
