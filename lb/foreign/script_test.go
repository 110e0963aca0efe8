package foreign_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/foreign"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failing    = connectivity.TransientFailure
	shutdown   = connectivity.Shutdown
)

// script is a policy that does what its test says, and records its calls. It is
// its own builder.
type script struct {
	t      *testing.T
	cc     balancer.ClientConn
	calls  []string
	inside bool
	last   policy.Child

	// What it does when it gets a config, of its end, and of a SubConn's state; nil for
	// nothing. doing replaces onConfig.
	onConfig func(balancer.ClientConnState) error
	doing    func()
	onClose  func()
	onState  func(balancer.SubConn, balancer.SubConnState)
}

type scriptConfig struct {
	serviceconfig.LoadBalancingConfig
	text string
}

func (s *script) Name() string { return "script" }

func (s *script) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	s.cc = cc
	return s
}

func (s *script) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	if string(text) == "null" {
		return nil, errors.New("no script")
	}
	return &scriptConfig{text: string(text)}, nil
}

// record notes a call of the policy. grpc calls no policy from within one of the
// policy's own calls, and no policy that is closed.
func (s *script) record(format string, args ...any) (leave func()) {
	s.t.Helper()
	line := fmt.Sprintf(format, args...)
	if s.inside {
		s.t.Errorf("called %q during another call", line)
	}
	if slices.Contains(s.calls, "close") {
		s.t.Errorf("called %q after Close", line)
	}
	s.inside = true
	s.calls = append(s.calls, line)
	return func() { s.inside = false }
}

func (s *script) UpdateClientConnState(state balancer.ClientConnState) error {
	config := "none"
	if c, ok := state.BalancerConfig.(*scriptConfig); ok {
		config = c.text
	}
	if s.doing != nil {
		defer s.record("do")()
		s.doing()
		return nil
	}
	s.last = policy.Child{Config: state.BalancerConfig}
	for _, e := range state.ResolverState.Endpoints {
		s.last.Endpoints = append(s.last.Endpoints, policy.EndpointOfAddresses(e.Addresses))
	}
	defer s.record("config %s of %d addresses", config, len(state.ResolverState.Addresses))()
	if s.onConfig != nil {
		return s.onConfig(state)
	}
	return nil
}

func (s *script) ResolverError(err error) { s.t.Errorf("called ResolverError: %v", err) }

func (s *script) UpdateSubConnState(sc balancer.SubConn, state balancer.SubConnState) {
	defer s.record("SubConn %v", state.ConnectivityState)()
	if s.onState != nil {
		s.onState(sc, state)
	}
}

func (s *script) ExitIdle() { s.t.Error("called ExitIdle") }

func (s *script) Close() {
	leave := s.record("close")
	defer leave()
	if s.onClose != nil {
		s.onClose()
	}
}

// expect compares the calls since the last time.
func (s *script) expect(when string, want ...string) {
	s.t.Helper()
	if !slices.Equal(s.calls, want) {
		s.t.Errorf("%s: calls %q, want %q", when, s.calls, want)
	}
	s.calls = nil
}

// listen makes a listener that records its calls under name.
func (s *script) listen(name string) func(balancer.SubConnState) {
	return func(state balancer.SubConnState) {
		if state.ConnectionError != nil {
			s.record("%s %v: %v", name, state.ConnectivityState, state.ConnectionError)()
			return
		}
		s.record("%s %v", name, state.ConnectivityState)()
	}
}

// subConn makes a SubConn for the addresses that the policy records under name.
func (s *script) subConn(name string, addrs ...resolver.Address) balancer.SubConn {
	s.t.Helper()
	sc, err := s.cc.NewSubConn(addrs, balancer.NewSubConnOptions{StateListener: s.listen(name)})
	if err != nil {
		s.t.Errorf("SubConn %s: %v", name, err)
	}
	return sc
}

// stage is a tree that runs a script.
type stage struct {
	*lbtest.Tree
	*script
}

func play(t *testing.T) *stage {
	s := &script{t: t}
	return &stage{lbtest.NewTree(t, foreign.Wrap(s)), s}
}

// Close ends the tree, and with it the policy.
func (s *stage) Close() { s.Tree.Close() }

// act lets the owner let the policy do f, and all that comes of it happen.
func (s *stage) act(f func()) {
	s.Batch(func() { s.do(f) })
	s.Batch(func() {}) // behind what it has brought
}

// do lets the policy do f when it gets its last config again. The owner must call it.
func (s *stage) do(f func()) {
	s.doing = f
	if err := s.Root().Update(s.last); err != nil {
		s.t.Error(err)
	}
	s.doing = nil
	s.calls = slices.DeleteFunc(s.calls, func(h string) bool { return h == "do" })
}

// say lets a SubConn of the tree be in a state.
func (s *stage) say(address string, state connectivity.State, err error) {
	s.t.Helper()
	s.Batch(func() { s.SubConn(address).Says(state, err) })
}

// endpoint is one with these addresses.
func endpoint(addresses ...string) *resource.Endpoint {
	return &resource.Endpoint{Addresses: addresses, Weight: 1}
}

// part is a config of the policy with these endpoints.
func part(text string, endpoints ...*resource.Endpoint) policy.Child {
	c := policy.Child{Config: &scriptConfig{text: text}}
	c.Endpoints = append(c.Endpoints, endpoints...)
	return c
}

// addressesOf are e's, as policies get them.
func addressesOf(e *resource.Endpoint) []resolver.Address {
	return policy.ResolverEndpoint(e).Addresses
}

// equal compares got with want.
func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}
