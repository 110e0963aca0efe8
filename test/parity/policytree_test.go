package parity_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/lbtest"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// policySide is one policy, of grpc-go or of lbd, without a network: its SubConns
// become READY when they are asked to connect. It runs in a synctest bubble.
type policySide interface {
	// endpoints sends a config with these endpoints.
	endpoints(addresses ...string)
	// pick returns the picked address, and what ends the request; "" and the error
	// where the pick fails or queues.
	pick() (address string, done func(balancer.DoneInfo), err error)
}

// errRequest is how a request fails in these tests.
var errRequest = errors.New("the request failed")

// grpcPolicy runs a policy of grpc-go's registry on a ClientConn that calls it, as
// grpc-go's channel does, from one goroutine.
type grpcPolicy struct {
	balancer.ClientConn

	t       *testing.T
	builder balancer.Builder
	config  string // JSON
	policy  balancer.Balancer
	calls   chan func()

	refuse error // of NewSubConn; nil lets it make one
	manual bool  // SubConns stay in the state that the test sets

	mu       sync.Mutex
	picker   balancer.Picker
	subConns map[string]*grpcPolicySubConn // the newest of each address
	connects []string                      // the addresses of SubConns that were asked to connect
}

func newGRPCPolicy(t *testing.T, name, config string) *grpcPolicy {
	p := &grpcPolicy{t: t, builder: balancer.Get(name), config: config, calls: make(chan func(), 1<<10), subConns: make(map[string]*grpcPolicySubConn)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for f := range p.calls {
			f()
		}
	}()
	p.policy = p.builder.Build(p, balancer.BuildOptions{})
	t.Cleanup(func() {
		p.call(p.policy.Close)
		close(p.calls)
		<-done
	})
	return p
}

// call runs f in the goroutine that calls the policy, and returns when all that
// comes of it has happened.
func (p *grpcPolicy) call(f func()) {
	p.calls <- f
	synctest.Wait()
}

func (p *grpcPolicy) endpoints(addresses ...string) {
	p.t.Helper()
	config, err := parseConfig(p.builder, []byte(p.config))
	if err != nil {
		p.t.Fatal(err)
	}
	s := balancer.ClientConnState{BalancerConfig: config}
	for _, a := range addresses {
		s.ResolverState.Endpoints = append(s.ResolverState.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	p.call(func() { err = p.policy.UpdateClientConnState(s) })
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *grpcPolicy) pick() (address string, done func(balancer.DoneInfo), err error) {
	p.mu.Lock()
	picker := p.picker
	p.mu.Unlock()
	res, err := picker.Pick(balancer.PickInfo{Ctx: context.Background()})
	if err != nil {
		return "", nil, err
	}
	if res.Done == nil {
		res.Done = func(balancer.DoneInfo) {}
	}
	sc, ok := res.SubConn.(*grpcPolicySubConn)
	if !ok {
		return "", nil, fmt.Errorf("picked a %T", res.SubConn)
	}
	return sc.address, res.Done, nil
}

func (p *grpcPolicy) NewSubConn(addrs []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if p.refuse != nil {
		return nil, p.refuse
	}
	sc := &grpcPolicySubConn{of: p, address: addrs[0].Addr, listener: o.StateListener}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subConns[sc.address] = sc
	return sc, nil
}

func (p *grpcPolicy) UpdateState(s balancer.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.picker = s.Picker
}

func (p *grpcPolicy) ResolveNow(resolver.ResolveNowOptions) {}

func (p *grpcPolicy) Target() string { return "" }

func (p *grpcPolicy) MetricsRecorder() estats.MetricsRecorder {
	return &estats.UnimplementedMetricsRecorder{}
}

type grpcPolicySubConn struct {
	balancer.SubConn

	of       *grpcPolicy
	address  string
	listener func(balancer.SubConnState)
}

// says lets the SubConn be in states, one after the other.
func (s *grpcPolicySubConn) says(states ...connectivity.State) {
	for _, state := range states {
		s.of.calls <- func() { s.listener(balancer.SubConnState{ConnectivityState: state}) }
	}
}

// Connect is noted.
func (s *grpcPolicySubConn) Connect() {
	s.of.mu.Lock()
	s.of.connects = append(s.of.connects, s.address)
	s.of.mu.Unlock()
	if !s.of.manual {
		s.says(connectivity.Connecting, connectivity.Ready)
	}
}

func (s *grpcPolicySubConn) Shutdown() { s.says(connectivity.Shutdown) }

// RegisterHealthListener reports READY: nobody checks the health.
func (s *grpcPolicySubConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	if f != nil {
		s.of.calls <- func() { f(balancer.SubConnState{ConnectivityState: connectivity.Ready}) }
	}
}

// lbdPolicy runs a policy of lbd's.
type lbdPolicy struct {
	tree   *lbtest.Tree
	values map[string]*resource.Endpoint
	child  func([]resolver.Endpoint) policy.Child
	weight func(address string) uint32 // of an endpoint; nil is 1
	down   string                      // the address that does not connect, where there is one
}

// newLBDPolicy runs a policy whose config with endpoints child makes.
func newLBDPolicy(t *testing.T, child func([]resolver.Endpoint) policy.Child, builder balancer.Builder, others ...balancer.Builder) *lbdPolicy {
	return &lbdPolicy{tree: lbtest.NewTree(t, builder, others...), values: make(map[string]*resource.Endpoint), child: child}
}

func (p *lbdPolicy) endpoints(addresses ...string) {
	var all []resolver.Endpoint
	for _, a := range addresses {
		if p.values[a] == nil {
			p.values[a] = &resource.Endpoint{Addresses: []string{a}, Weight: 1}
			if p.weight != nil {
				p.values[a].Weight = p.weight(a)
			}
		}
		all = append(all, policy.ResolverEndpoint(p.values[a]))
	}
	p.tree.Config(p.child(all))
	p.tree.Batch(func() {
		for _, sc := range p.tree.SubConns {
			if !sc.Closed && sc.Connects > 0 && sc.State == connectivity.Idle && sc.Addresses[0].Addr != p.down {
				sc.Says(connectivity.Connecting, nil)
				sc.Says(connectivity.Ready, nil)
			}
		}
	})
}

func (p *lbdPolicy) pick() (address string, done func(balancer.DoneInfo), err error) {
	p.tree.Batch(func() {}) // what the owner has published is seen from here on
	call := &policy.Call{Hold: true}
	if _, err := p.tree.Pick(call); err != nil {
		return "", nil, err
	}
	held := call.Held()
	return call.Endpoint.Addresses[0], func(info balancer.DoneInfo) {
		outcome := policy.OutcomeSuccess
		if info.Err != nil {
			outcome = policy.OutcomeError
		}
		held.Finish(outcome, info)
	}, nil
}

// complete makes n requests that end at once, and fail at the endpoints named.
func complete(t *testing.T, side policySide, n int, failing ...string) {
	t.Helper()
	for range n {
		address, done, err := side.pick()
		switch {
		case err != nil:
			t.Fatalf("pick: %v", err)
		case slices.Contains(failing, address):
			done(balancer.DoneInfo{Err: errRequest})
		default:
			done(policy.NoInfo)
		}
	}
}

// count makes n requests that end at once, and counts them by endpoint.
func count(t *testing.T, side policySide, n int) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for range n {
		address, done, err := side.pick()
		if err != nil {
			t.Fatalf("pick: %v", err)
		}
		done(policy.NoInfo)
		counts[address]++
	}
	return counts
}

// used lists the endpoints that n picks come to, in order.
func used(t *testing.T, side policySide, n int) string {
	t.Helper()
	return fmt.Sprintf("picks %s", strings.Join(slices.Sorted(maps.Keys(count(t, side, n))), " "))
}
