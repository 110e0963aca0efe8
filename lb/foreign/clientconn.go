package foreign

import (
	"context"
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
)

var (
	errNoAddress = errors.New("a SubConn needs an address")
	errClosed    = errors.New("the policy is closed, and gets no SubConn")
)

// clientConn is the policy's ClientConn. Any goroutine may call it.
type clientConn struct {
	*policy.Conn

	policy *foreign
	calls  calls
}

// do makes the owner run f, unless the policy is closed by then.
func (cc *clientConn) do(f func()) {
	cc.calls.add(func() {
		if !cc.policy.closed {
			f()
		}
	})
}

// NewSubConn returns a SubConn at once, and the owner creates it later. If that fails,
// it is in TRANSIENT_FAILURE.
func (cc *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if len(addrs) == 0 {
		return nil, errNoAddress
	}
	sc := newSubConn(cc, addrs, opts.StateListener)
	if !cc.calls.add(func() { sc.open(addrs, opts) }) {
		return nil, errClosed
	}
	return sc, nil
}

func (cc *clientConn) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

func (cc *clientConn) UpdateAddresses(sc balancer.SubConn, addrs []resolver.Address) {
	sc.UpdateAddresses(addrs)
}

// UpdateState sends the policy's state with a picker that adapts its own. As in grpc's
// channel, picks wait if there is no picker.
func (cc *clientConn) UpdateState(s balancer.State) {
	if s.Picker == nil {
		s.Picker = policy.QueuePicker
	}
	cc.do(func() {
		f := cc.policy
		f.reported, f.err = s.ConnectivityState, failureOf(s)
		f.changed()
		cc.Conn.UpdateState(balancer.State{
			ConnectivityState: s.ConnectivityState,
			Picker:            &picker{inner: s.Picker, policy: f.builder.Name(), failure: f.err},
		})
	})
}

// failureOf picks once from a policy that has failed, to get the reason.
func failureOf(s balancer.State) error {
	if s.ConnectivityState != connectivity.TransientFailure {
		return nil
	}
	res, err := s.Picker.Pick(balancer.PickInfo{Ctx: context.Background()})
	if err == nil {
		unpick(res)
	}
	if err == balancer.ErrNoSubConnAvailable { //nolint:errorlint // pickers return it bare
		return nil
	}
	return err
}

func (cc *clientConn) ResolveNow(o resolver.ResolveNowOptions) {
	cc.do(func() { cc.Conn.ResolveNow(o) })
}
