package outlierdetection

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// endpoint is one endpoint of the config, identified by the set of its addresses.
type endpoint struct {
	ended atomic.Uint64 // requests of the interval that runs, as outcomes

	// Fixed.
	key      string
	finisher policy.Finisher // itself

	// Owner only.
	value    *resource.Endpoint
	priority int
	seen     uint64 // the last config that had it
	subConns []*subConn

	last     outcomes             // of the interval that ended last
	reasons  []string             // to eject it, in the interval that is judged
	ejection *policy.EjectedError // nil unless it is ejected
	at       time.Time            // of the ejection
	// times is gRPC's ejection time multiplier: incremented by each ejection, and
	// decremented by each interval without one.
	times int64
}

// key does not depend on the order of the addresses.
func key(addresses []string) string {
	if len(addresses) == 1 {
		return addresses[0]
	}
	return strings.Join(slices.Sorted(slices.Values(addresses)), "\x00")
}

// outcomes counts how requests ended: errors in the lower 32 bits, successes in the
// upper. One word can be read and reset atomically.
type outcomes uint64

const (
	oneError   = 1
	oneSuccess = 1 << 32
)

func (o outcomes) successes() uint32 { return uint32(o >> 32) }
func (o outcomes) errors() uint32    { return uint32(o) }
func (o outcomes) requests() uint64  { return uint64(o.successes()) + uint64(o.errors()) }

// successRate is 0 to 1. There must be a request.
func (o outcomes) successRate() float64 { return float64(o.successes()) / float64(o.requests()) }

// Finish counts a request, unless it was canceled, was not sent, or its end is not known.
func (e *endpoint) Finish(outcome policy.Outcome, _ balancer.DoneInfo) {
	switch outcome {
	case policy.OutcomeSuccess:
		e.ended.Add(oneSuccess)
	case policy.OutcomeError:
		e.ended.Add(oneError)
	case policy.OutcomeCancelled, policy.OutcomeUnreachable, policy.OutcomeExpired:
	}
}

// Use counts reported requests, without those that were canceled, and connects that failed
// if lbd makes none.
func (e *endpoint) Use(u *policy.Usage) {
	failed := u.Errors
	if !u.Checked {
		failed = policy.AddSaturating(failed, u.ConnectFailures)
	}
	for {
		was := e.ended.Load()
		o := outcomes(was)
		sum := uint64(policy.AddSaturating(o.successes(), u.Successes))<<32 | uint64(policy.AddSaturating(o.errors(), failed))
		if e.ended.CompareAndSwap(was, sum) {
			return
		}
	}
}

// eject makes the endpoint fail because of why, which may replace another reason.
func (e *endpoint) eject(why *policy.EjectedError) {
	e.ejection = why
	for _, sc := range e.subConns {
		sc.Eject(true)
		sc.eject(why)
	}
}

// uneject restores the states of the endpoint's connections.
func (e *endpoint) uneject() {
	e.ejection = nil
	for _, sc := range e.subConns {
		sc.Eject(false)
		sc.report(sc.Reported())
	}
}

// fails reports whether the policies below see the endpoint as failed.
func (e *endpoint) fails() bool {
	return slices.ContainsFunc(e.subConns, func(sc *subConn) bool { return sc.reported == connectivity.TransientFailure })
}

// picker lets the child pick, and counts how the request ends. It is used while
// detecting.
type picker struct {
	policy.Failed

	child balancer.Picker
}

func (b *outlierDetection) picker(child balancer.State) balancer.Picker {
	if b.detection == nil {
		return child.Picker
	}
	return &picker{child: child.Picker, Failed: policy.Failed{Err: policy.FailureOf(child)}}
}

// Pick lets the child pick. The end of a pick counts if it holds.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	res, err := p.child.Pick(info)
	if err != nil {
		return res, err
	}
	call := policy.CallOf(info.Ctx)
	if !call.Hold {
		return res, nil
	}
	if u := call.Upstream; u != nil { // grpc's contract allows a policy below to make a SubConn of its own
		if counts := u.Connection.Finisher(); counts != nil {
			call.OnFinish(counts)
		}
	}
	return res, nil
}

// subConn is the state of a SubConn that can be ejected with its endpoint. While it is,
// its policy sees it as failed.
type subConn struct {
	*policy.Connection // which reports its own state

	// Fixed after build.
	policy   *outlierDetection
	listener func(balancer.SubConnState)

	// Owner only.
	index    int                // in the policy's subConns
	endpoint *endpoint          // nil if the config does not have it
	reported connectivity.State // the last state that its policy has seen
}

// real is the SubConn's own state.
func (s *subConn) real() connectivity.State { return s.Reported().ConnectivityState }

// setEndpoint makes the held picks of the SubConn count for e, which may be nil.
func (s *subConn) setEndpoint(e *endpoint) {
	s.endpoint = e
	if e == nil {
		s.SetFinisher(nil)
		return
	}
	s.SetFinisher(&e.finisher)
	s.Eject(e.ejection != nil)
}

// ejection is why the SubConn is ejected, or nil.
func (s *subConn) ejection() *policy.EjectedError {
	if s.endpoint != nil {
		return s.endpoint.ejection
	}
	return nil
}

// changed handles the SubConn's own state. An ejected SubConn stays connected, for
// picks after the ejection.
func (s *subConn) changed(state balancer.SubConnState) {
	why := s.ejection()
	if s.real() == connectivity.Shutdown {
		s.policy.leave(s)
		why = nil
	}
	switch {
	case why == nil, s.Partial() && s.real() != connectivity.Ready:
		s.report(state)
	case s.reported != connectivity.TransientFailure: // made for an ejected endpoint
		s.eject(why)
	}
	if why != nil && s.real() == connectivity.Idle && !s.Partial() {
		s.Connect()
	}
}

// eject makes the SubConn fail for its policy. A partial one that is not READY gets no
// picks anyway, and its policy must see which address fails, to try the next one.
func (s *subConn) eject(why *policy.EjectedError) {
	if s.Partial() && s.real() != connectivity.Ready {
		return
	}
	s.report(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: why})
}

// report reports state to the SubConn's policy.
func (s *subConn) report(state balancer.SubConnState) {
	s.reported = state.ConnectivityState
	if s.listener != nil {
		s.listener(state)
	}
}
