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

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/test/lbtest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// policySide is one policy, of grpc-go or of lbd, without a network: its SubConns become
// READY when Connect is called. It runs in a synctest bubble.
type policySide interface {
	// endpoints sends a config with these endpoints.
	endpoints(addresses ...string)
	// pick returns the picked address and the end of the request, or an error if the pick
	// fails or queues.
	pick() (address string, done func(balancer.DoneInfo), err error)
	// lose ends an endpoint's connection, which is made again at once.
	lose(address string)
}

// errRequest is the error of failed requests and connections.
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

	reject error // of NewSubConn, or nil
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

// call runs f in the goroutine that calls the policy, and waits for all its effects.
func (p *grpcPolicy) call(f func()) {
	p.calls <- f
	synctest.Wait()
}

func (p *grpcPolicy) endpoints(addresses ...string) {
	p.t.Helper()
	var all []resolver.Endpoint
	for _, a := range addresses {
		all = append(all, resolver.Endpoint{Addresses: []resolver.Address{{Addr: a}}})
	}
	p.update(all)
}

func (p *grpcPolicy) update(all []resolver.Endpoint) {
	p.t.Helper()
	config, err := parseConfig(p.builder, []byte(p.config))
	must(p.t, err)
	p.call(func() {
		err = p.policy.UpdateClientConnState(balancer.ClientConnState{ResolverState: resolver.State{Endpoints: all}, BalancerConfig: config})
	})
	must(p.t, err)
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

// report reports states of an address' SubConn.
func (p *grpcPolicy) report(address string, states ...connectivity.State) {
	p.mu.Lock()
	sc := p.subConns[address]
	p.connects = nil
	p.mu.Unlock()
	sc.report(states...)
	synctest.Wait()
}

func (p *grpcPolicy) lose(address string) { p.report(address, connectivity.Idle) }

func (p *grpcPolicy) NewSubConn(addrs []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if p.reject != nil {
		return nil, p.reject
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

// report reports states of the SubConn, one after the other.
func (s *grpcPolicySubConn) report(states ...connectivity.State) {
	for _, state := range states {
		s.of.calls <- func() { s.listener(balancer.SubConnState{ConnectivityState: state}) }
	}
}

// Connect is recorded.
func (s *grpcPolicySubConn) Connect() {
	s.of.mu.Lock()
	s.of.connects = append(s.of.connects, s.address)
	s.of.mu.Unlock()
	if !s.of.manual {
		s.report(connectivity.Connecting, connectivity.Ready)
	}
}

func (s *grpcPolicySubConn) Shutdown() { s.report(connectivity.Shutdown) }

// RegisterHealthListener reports READY: there are no health checks.
func (s *grpcPolicySubConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	if f != nil {
		s.of.calls <- func() { f(balancer.SubConnState{ConnectivityState: connectivity.Ready}) }
	}
}

// lbdPolicy runs a policy of lbd.
type lbdPolicy struct {
	tree   *lbtest.Tree
	values map[string]*resource.Endpoint
	child  func([]*resource.Endpoint) policy.Child
	weight func(address string) uint32 // of an endpoint; nil is 1
	down   string                      // the address that does not connect, where there is one
}

// newLBDPolicy runs a policy. child returns its config with the endpoints.
func newLBDPolicy(t *testing.T, child func([]*resource.Endpoint) policy.Child, builder policy.Factory, others ...policy.Factory) *lbdPolicy {
	return &lbdPolicy{tree: lbtest.NewTree(t, builder, others...), values: make(map[string]*resource.Endpoint), child: child}
}

func (p *lbdPolicy) endpoints(addresses ...string) {
	var all []*resource.Endpoint
	for _, a := range addresses {
		if p.values[a] == nil {
			p.values[a] = &resource.Endpoint{Addresses: []string{a}, Weight: 1}
			if p.weight != nil {
				p.values[a].Weight = p.weight(a)
			}
		}
		all = append(all, p.values[a])
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

// report reports states of an address' SubConn.
func (p *lbdPolicy) report(address string, states ...connectivity.State) {
	sc := p.tree.SubConn(address)
	for _, s := range states {
		p.tree.Batch(func() { sc.Says(s, errRequest) })
	}
}

func (p *lbdPolicy) lose(address string) {
	p.report(address, connectivity.Idle, connectivity.Connecting, connectivity.Ready)
}

func (p *lbdPolicy) pick() (address string, done func(balancer.DoneInfo), err error) {
	p.tree.Batch(func() {}) // waits for the published picker
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

// complete makes n requests that end at once, and fail at the given endpoints. It counts
// them by endpoint.
func complete(t *testing.T, side policySide, n int, failing ...string) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for range n {
		address, done, err := side.pick()
		if err != nil {
			t.Fatalf("pick: %v", err)
		}
		info := policy.NoInfo
		if slices.Contains(failing, address) {
			info.Err = errRequest
		}
		done(info)
		counts[address]++
	}
	return counts
}

// used lists the endpoints of n requests, in order.
func used(t *testing.T, side policySide, n int) string {
	t.Helper()
	return fmt.Sprintf("picks %s", strings.Join(slices.Sorted(maps.Keys(complete(t, side, n))), " "))
}
