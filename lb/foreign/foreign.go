// Package foreign runs endpoint policies that are not lbd's: any builder that is
// registered with grpc's balancer.Register.
//
// Such a policy keeps grpc's contract, and only that: it may call its ClientConn
// and its SubConns from any goroutine, and it does not know a [policy.Call]. What
// it calls is posted to the tree's owner, in order. What it picks is taken as one
// step that nobody can look into.
package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Lookup returns the policy that is registered with grpc under name, ready for
// lbd's trees, or nil.
func Lookup(name string) balancer.Builder {
	if b := balancer.Get(name); b != nil {
		return Wrap(b)
	}
	return nil
}

// Wrap returns a builder that runs inner's policies in lbd's trees. Their config
// is a [policy.CustomConfig].
func Wrap(inner balancer.Builder) balancer.Builder { return builder{inner} }

type builder struct{ inner balancer.Builder }

// Name is the wrapped builder's.
func (b builder) Name() string { return b.inner.Name() }

// Build builds the wrapped policy.
func (b builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		f := &foreign{builder: b.inner, reported: connectivity.Connecting}
		f.conn = &clientConn{Conn: conn, policy: f}
		f.inner = b.inner.Build(f.conn, opts)
		return f
	})
}

// foreign belongs to the owner, all of it.
type foreign struct {
	builder balancer.Builder
	conn    *clientConn
	inner   balancer.Balancer

	json     string
	config   serviceconfig.LoadBalancingConfig
	subConns map[*subConn]struct{}
	reported connectivity.State
	err      error
	pending  bool
	closed   bool
}

func (f *foreign) UpdateClientConnState(s balancer.ClientConnState) error {
	if custom, ok := s.BalancerConfig.(policy.CustomConfig); ok {
		if err := f.parse(custom.JSON); err != nil {
			return err
		}
		s.BalancerConfig = f.config
	}
	// grpc's own channel gives policies the flat list as well.
	for _, e := range s.ResolverState.Endpoints {
		s.ResolverState.Addresses = append(s.ResolverState.Addresses, e.Addresses...)
	}
	return f.inner.UpdateClientConnState(s)
}

// parse lets the builder parse a config that is new.
func (f *foreign) parse(text string) error {
	parser, ok := f.builder.(balancer.ConfigParser)
	if !ok || text == f.json && f.config != nil {
		return nil
	}
	config, err := parser.ParseConfig(json.RawMessage(text))
	if err != nil {
		return fmt.Errorf("config of policy %s: %w", f.builder.Name(), err)
	}
	f.json, f.config = text, config
	return nil
}

// Report does nothing: to be marked is what lets the summary be made anew.
func (f *foreign) Report() {}

func (f *foreign) ResolverError(err error) { f.inner.ResolverError(err) }

// UpdateSubConnState goes to a policy that gave its SubConn no listener.
func (f *foreign) UpdateSubConnState(sc balancer.SubConn, s balancer.SubConnState) {
	f.inner.UpdateSubConnState(sc, s)
}

func (f *foreign) ExitIdle() { f.inner.ExitIdle() }

func (f *foreign) Close() {
	f.closed = true
	f.inner.Close()
	for sc := range f.subConns { // grpc lets policies leave them behind
		sc.close()
	}
}

// Describe describes the policy's connections. What it does with them is its own.
func (f *foreign) Describe() policy.Node {
	n := policy.Node{Policy: f.builder.Name(), State: f.reported, Err: f.err, Endpoints: []policy.EndpointNode{}}
	for sc := range f.subConns {
		n.Endpoints = append(n.Endpoints, sc.describe())
	}
	return n
}

// Summarize counts the policy's connections.
func (f *foreign) Summarize() policy.Summary {
	s := policy.Summary{State: f.reported, Priority: -1}
	for sc := range f.subConns {
		switch sc.state {
		case connectivity.Ready:
			s.Census.Ready++
		case connectivity.Connecting:
			s.Census.Connecting++
		case connectivity.TransientFailure:
			s.Census.TransientFailure++
		default:
			s.Census.Idle++
		}
	}
	return s
}

// clientConn is what the policy calls, from any goroutine.
type clientConn struct {
	*policy.Conn

	policy *foreign
}

// NewSubConn returns a SubConn at once. The real one is made by the owner.
func (cc *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("a SubConn needs an address")
	}
	sc := &subConn{conn: cc, endpoint: policy.EndpointOfAddresses(addrs), listener: opts.StateListener}
	cc.post(func() { sc.open(addrs, opts) })
	return sc, nil
}

// post lets the owner run f, unless the policy is closed by then.
func (cc *clientConn) post(f func()) {
	cc.Post(func() {
		if !cc.policy.closed {
			f()
		}
	})
}

// RemoveSubConn shuts sc down.
func (cc *clientConn) RemoveSubConn(sc balancer.SubConn) { sc.Shutdown() }

// UpdateAddresses gives sc other addresses.
func (cc *clientConn) UpdateAddresses(sc balancer.SubConn, addrs []resolver.Address) {
	sc.UpdateAddresses(addrs)
}

// UpdateState sends the policy's state up, under a picker that speaks to both.
func (cc *clientConn) UpdateState(s balancer.State) {
	cc.post(func() {
		f := cc.policy
		f.reported, f.err = s.ConnectivityState, policy.FailureOf(s)
		cc.Conn.UpdateState(balancer.State{
			ConnectivityState: s.ConnectivityState,
			Picker:            &picker{inner: s.Picker, policy: f.builder.Name()},
		})
	})
}

// ResolveNow is posted like everything.
func (cc *clientConn) ResolveNow(o resolver.ResolveNowOptions) {
	cc.post(func() { cc.Conn.ResolveNow(o) })
}

// subConn stands for a SubConn of the tree's. Its methods may be called from any
// goroutine.
type subConn struct {
	balancer.SubConn // grpc wants it embedded; every method is overridden

	conn     *clientConn
	endpoint *resource.Endpoint
	listener func(balancer.SubConnState)

	real atomic.Pointer[balancer.SubConn] // nil until it is made

	// Owner only.
	state   connectivity.State
	lastErr error
}

// open makes the real one. One that cannot be made fails as a connection would.
func (s *subConn) open(addrs []resolver.Address, opts balancer.NewSubConnOptions) {
	opts.StateListener = s.changed
	sc, err := s.conn.Conn.NewSubConn(addrs, opts)
	if err != nil {
		s.changed(balancer.SubConnState{ConnectivityState: connectivity.TransientFailure, ConnectionError: err})
		return
	}
	s.real.Store(&sc)
	f := s.conn.policy
	if f.subConns == nil {
		f.subConns = make(map[*subConn]struct{})
	}
	f.subConns[s] = struct{}{}
}

func (s *subConn) changed(to balancer.SubConnState) {
	s.state = to.ConnectivityState
	if to.ConnectivityState == connectivity.Ready {
		s.lastErr = nil
	} else if to.ConnectionError != nil {
		s.lastErr = to.ConnectionError
	}
	if to.ConnectivityState == connectivity.Shutdown {
		delete(s.conn.policy.subConns, s)
	}
	s.conn.Mark(s.conn.policy, &s.conn.policy.pending)
	if s.listener != nil {
		s.listener(to)
		return
	}
	s.conn.policy.UpdateSubConnState(s, to)
}

// do lets the owner do f with the real one.
func (s *subConn) do(f func(balancer.SubConn)) {
	s.conn.post(func() {
		if sc := s.real.Load(); sc != nil {
			f(*sc)
		}
	})
}

func (s *subConn) close() {
	if sc := s.real.Load(); sc != nil {
		(*sc).Shutdown()
	}
}

func (s *subConn) describe() policy.EndpointNode {
	n := policy.EndpointNode{
		Endpoint: s.endpoint, State: s.state, InRotation: s.state == connectivity.Ready, LastErr: s.lastErr,
	}
	if sc := s.real.Load(); sc != nil {
		if own, ok := (*sc).(policy.SubConn); ok {
			n.Address, _ = own.Ready()
		}
	}
	return n
}

// Connect is posted.
func (s *subConn) Connect() { s.do(func(sc balancer.SubConn) { sc.Connect() }) }

// Shutdown is posted.
func (s *subConn) Shutdown() { s.do(func(sc balancer.SubConn) { sc.Shutdown() }) }

// UpdateAddresses is posted.
func (s *subConn) UpdateAddresses(addrs []resolver.Address) {
	s.do(func(sc balancer.SubConn) { sc.UpdateAddresses(addrs) })
}

// GetOrBuildProducer returns no Producer: lbd makes no calls on connections.
func (s *subConn) GetOrBuildProducer(balancer.ProducerBuilder) (balancer.Producer, func()) {
	return nil, func() {}
}

// RegisterHealthListener is posted.
func (s *subConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	s.do(func(sc balancer.SubConn) { sc.RegisterHealthListener(f) })
}
