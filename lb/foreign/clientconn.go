package foreign

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
)

var (
	errNoAddress = errors.New("a SubConn needs an address")
	errClosed    = errors.New("the policy is closed, and gets no SubConn")
)

// clientConn is the policy's ClientConn. Any goroutine may call it.
type clientConn struct {
	balancer.ClientConn // grpc wants it embedded; every method is overridden
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
	sc := &subConn{conn: cc, listener: opts.StateListener, endpoint: policy.EndpointOfAddresses(addrs), address: addrs[0].Addr, place: -1}
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
			Picker:            &picker{inner: s.Picker, policy: f.builder.Name(), Failed: policy.Failed{Err: f.err}},
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

// ResolveNow does nothing: updates of resources need no request.
func (cc *clientConn) ResolveNow(resolver.ResolveNowOptions) {}

func (cc *clientConn) Target() string { return "" }

func (cc *clientConn) MetricsRecorder() estats.MetricsRecorder {
	return &estats.UnimplementedMetricsRecorder{}
}

// calls holds what a policy has called, from any goroutine, until the owner runs it,
// in order. Calls that the policy makes while the owner is inside it may come from
// another goroutine: the owner runs them before it leaves the policy. The calls that
// result from them are queued, so that no call is made from within another.
type calls struct {
	post func(func()) // to the owner

	mu      sync.Mutex
	waiting []func()
	inside  bool // the owner will run what waits before it leaves the policy
	closed  bool // nothing is run any more
}

// add makes the owner run f. After close, it reports false.
func (c *calls) add(f func()) bool {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.waiting = append(c.waiting, f)
	}
	wake := len(c.waiting) == 1 && !c.inside // else the owner comes anyway
	c.mu.Unlock()
	if wake {
		c.post(func() { c.within(func() {}) })
	}
	return !closed
}

// close runs the waiting calls and rejects others. The owner must not be inside.
func (c *calls) close() {
	c.within(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.closed = true
	})
}

// within lets the owner run f, which calls the policy, and then the policy's calls.
func (c *calls) within(f func()) {
	c.mu.Lock()
	was := c.inside
	c.inside = true
	c.mu.Unlock()
	f()
	if was {
		return // the owner runs them when it leaves
	}
	for batch := c.take(); batch != nil; batch = c.take() {
		for _, call := range batch {
			call()
		}
	}
}

// take returns the waiting calls. If there are none, the owner has left.
func (c *calls) take() []func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch := c.waiting
	c.waiting = nil
	c.inside = batch != nil
	return batch
}

// maxAsks limits the picks from a policy until one is not excluded: the policy does
// not know exclusions.
const maxAsks = 8

var errAllExcluded = policy.NewRefusal(policy.KindAllExcluded, "", "the policy chose only endpoints that are excluded")

// picker picks from a policy, and replaces its SubConn by the tree's.
type picker struct {
	policy.Failed // what it answered when it was asked, if the policy has failed

	inner  balancer.Picker
	policy string
}

// Pick repeats picks that are excluded.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	call := policy.CallOf(info.Ctx)
	if call.Trace != nil {
		call.Trace.Steps = append(call.Trace.Steps, policy.OpaqueStep{Policy: p.policy})
	}
	for range maxAsks {
		res, err := p.inner.Pick(info)
		if err != nil {
			return balancer.PickResult{}, err
		}
		sc, ok := res.SubConn.(*subConn)
		var u *policy.Upstream
		if ok {
			u = sc.upstream.Load()
		}
		if u == nil {
			unpick(res)
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
		if call.Excludes(u.Endpoint) {
			unpick(res)
			continue
		}
		res.SubConn = u.Pick(call).SubConn
		return res, nil
	}
	return balancer.PickResult{}, errAllExcluded
}

// unpick ends a pick that is not used.
func unpick(res balancer.PickResult) {
	if res.Done != nil {
		res.Done(balancer.DoneInfo{})
	}
}
