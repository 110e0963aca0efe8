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
	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	idle       = connectivity.Idle
	connecting = connectivity.Connecting
	ready      = connectivity.Ready
	failing    = connectivity.TransientFailure
	shutdown   = connectivity.Shutdown
)

// script is a policy that does what its test says, and tells what it hears. It is
// its own builder.
type script struct {
	t      *testing.T
	cc     balancer.ClientConn
	heard  []string
	inside bool

	// What it does when it hears of a config, of ExitIdle, of its end, and of a
	// SubConn's state; nil for nothing.
	onConfig func(balancer.ClientConnState) error
	onIdle   func()
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

// hears notes what the policy is told. grpc calls no policy from within one of the
// policy's own calls, and no policy that is closed.
func (s *script) hears(format string, args ...any) (leave func()) {
	s.t.Helper()
	line := fmt.Sprintf(format, args...)
	if s.inside {
		s.t.Errorf("hears %q while it is at something else", line)
	}
	if slices.Contains(s.heard, "close") {
		s.t.Errorf("hears %q after its end", line)
	}
	s.inside = true
	s.heard = append(s.heard, line)
	return func() { s.inside = false }
}

func (s *script) UpdateClientConnState(state balancer.ClientConnState) error {
	config := "none"
	if c, ok := state.BalancerConfig.(*scriptConfig); ok {
		config = c.text
	}
	defer s.hears("config %s of %d addresses", config, len(state.ResolverState.Addresses))()
	if s.onConfig != nil {
		return s.onConfig(state)
	}
	return nil
}

func (s *script) ResolverError(err error) { s.hears("%v", err)() }

func (s *script) UpdateSubConnState(sc balancer.SubConn, state balancer.SubConnState) {
	defer s.hears("SubConn %v", state.ConnectivityState)()
	if s.onState != nil {
		s.onState(sc, state)
	}
}

func (s *script) ExitIdle() {
	defer s.hears("idle")()
	if s.onIdle != nil {
		s.onIdle()
	}
}

func (s *script) Close() {
	leave := s.hears("close")
	defer leave()
	if s.onClose != nil {
		s.onClose()
	}
}

// expect compares what was heard since the last time.
func (s *script) expect(when string, want ...string) {
	s.t.Helper()
	if !slices.Equal(s.heard, want) {
		s.t.Errorf("%s it heard %q, want %q", when, s.heard, want)
	}
	s.heard = nil
}

// listen makes a listener that tells what it hears as name's.
func (s *script) listen(name string) func(balancer.SubConnState) {
	return func(state balancer.SubConnState) {
		if state.ConnectionError != nil {
			s.hears("%s %v: %v", name, state.ConnectivityState, state.ConnectionError)()
			return
		}
		s.hears("%s %v", name, state.ConnectivityState)()
	}
}

// subConn makes a SubConn for the addresses of which the policy hears as name.
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

// act lets the owner let the policy do f, in ExitIdle, and all that comes of it
// happen.
func (s *stage) act(f func()) {
	s.onIdle = f
	s.Batch(s.Root().ExitIdle)
	s.Batch(func() { // behind what it has brought
		s.onIdle = nil
		s.heard = slices.DeleteFunc(s.heard, func(h string) bool { return h == "idle" })
	})
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
	for _, e := range endpoints {
		c.Endpoints = append(c.Endpoints, policy.ResolverEndpoint(e))
	}
	return c
}

// addressesOf are e's, as policies get them.
func addressesOf(e *resource.Endpoint) []resolver.Address {
	return policy.ResolverEndpoint(e).Addresses
}

// equal compares what is told with what is wanted.
func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}
