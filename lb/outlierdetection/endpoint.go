package outlierdetection

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// endpoint is one endpoint, by the set of its addresses.
type endpoint struct {
	// Fixed.
	key     string
	address string // the first

	// Atomic.
	ended    atomic.Uint64 // requests of the interval that runs, as outcomes
	ejection atomic.Pointer[policy.EjectedError]

	// Owner only.
	index    int // in the policy's endpoints
	subConns []*subConn
	last     outcomes  // of the interval that ended last
	at       time.Time // of the ejection
	// times is gRPC's ejection time multiplier: how often the endpoint was
	// ejected, one less for each interval in which it was not.
	times int64
}

// key is the same for the same addresses, in whatever order.
func key(addresses []string) string {
	if len(addresses) == 1 {
		return addresses[0]
	}
	sorted := slices.Clone(addresses)
	slices.Sort(sorted)
	return strings.Join(sorted, "\x00")
}

// outcomes counts how requests ended: errors in the lower 32 bits, successes in
// the upper. One word, so that an interval's end neither splits nor loses one.
type outcomes uint64

const (
	oneError   = 1
	oneSuccess = 1 << 32
)

func (o outcomes) successes() uint32 { return uint32(o >> 32) }
func (o outcomes) errors() uint32    { return uint32(o) }
func (o outcomes) requests() uint64  { return uint64(o.successes()) + uint64(o.errors()) }

// successRate is the part of the requests that went well, 0 to 1. There must be
// a request.
func (o outcomes) successRate() float64 { return float64(o.successes()) / float64(o.requests()) }

// Finish counts a request. One that its caller gave up, or never told the end of,
// says nothing of the endpoint.
func (e *endpoint) Finish(outcome policy.Outcome, _ balancer.DoneInfo) {
	switch outcome {
	case policy.OutcomeSuccess:
		e.ended.Add(oneSuccess)
	case policy.OutcomeError:
		e.ended.Add(oneError)
	case policy.OutcomeCancelled, policy.OutcomeExpired:
	}
}

// eject lets the endpoint fail because of why. For one that is ejected already it
// tells the new reason.
func (e *endpoint) eject(why *policy.EjectedError) {
	e.ejection.Store(why)
	for _, sc := range e.subConns {
		sc.tell(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: why})
	}
}

// giveBack lets the endpoint be what its connections are.
func (e *endpoint) giveBack() {
	e.ejection.Store(nil)
	for _, sc := range e.subConns {
		sc.tell(sc.real)
	}
}

// remove takes sc out, and reports whether it was the last.
func (e *endpoint) remove(sc *subConn) bool {
	e.subConns = slices.DeleteFunc(e.subConns, func(s *subConn) bool { return s == sc })
	return len(e.subConns) == 0
}

// subConn is a SubConn of an endpoint that can be ejected. While it is, the
// SubConn's policy hears that it failed, and of nothing that it does.
type subConn struct {
	balancer.SubConn

	// Fixed after build.
	endpoint *endpoint
	listener func(balancer.SubConnState)

	// Owner only. real is the SubConn's own state; told is the one that its
	// policy heard last.
	real balancer.SubConnState
	told connectivity.State
}

// Ready asks the SubConn; one that cannot be asked is ready. One that is ejected
// is not, from the moment of the ejection on.
func (s *subConn) Ready() (string, bool) {
	if s.endpoint.ejection.Load() != nil {
		return "", false
	}
	if own, ok := s.SubConn.(policy.SubConn); ok {
		return own.Ready()
	}
	return s.endpoint.address, true
}

// heard takes the SubConn's own state. One that is ejected is kept connected, so
// that picks can reach it as soon as it is given back.
func (s *subConn) heard(state balancer.SubConnState) {
	s.real = state
	why := s.endpoint.ejection.Load()
	switch {
	case why == nil || state.ConnectivityState == connectivity.Shutdown:
		s.tell(state)
	case s.told != connectivity.TransientFailure: // made for an ejected endpoint
		s.tell(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: why})
	}
	if why != nil && state.ConnectivityState == connectivity.Idle {
		s.Connect()
	}
}

// tell lets the SubConn's policy hear state.
func (s *subConn) tell(state balancer.SubConnState) {
	s.told = state.ConnectivityState
	if s.listener != nil {
		s.listener(state)
	}
}
