// Package foreign runs endpoint policies that are not lbd's: those that are registered
// with grpc's balancer.Register.
//
// Such a policy follows only grpc's contract: it may call its ClientConn and SubConns
// from any goroutine, and does not know [policy.Call]. The tree's owner runs its calls
// in order: those made while the owner is inside the policy before the owner leaves
// it, so that an update is complete when it returns; others in a batch of their own.
// Its choice is one step of a trace, without details.
//
// Its SubConns report health as READY only, and the calls of its Producers fail as
// UNIMPLEMENTED, because lbd makes no calls.
package foreign

import (
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Lookup returns the policy of that name in grpc's registry, wrapped for lbd's trees,
// or nil.
func Lookup(name string) balancer.Builder {
	if b := balancer.Get(name); b != nil {
		return Wrap(b)
	}
	return nil
}

// Wrap returns a builder of inner's policies in lbd's trees.
func Wrap(inner balancer.Builder) balancer.Builder { return builder{inner} }

type builder struct{ inner balancer.Builder }

func (b builder) Name() string { return b.inner.Name() }

// ParseConfig returns nil for a policy that takes no config.
func (b builder) ParseConfig(text json.RawMessage) (serviceconfig.LoadBalancingConfig, error) {
	parser, ok := b.inner.(balancer.ConfigParser)
	if !ok {
		return nil, nil
	}
	config, err := parser.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("config of policy %s: %w", b.Name(), err)
	}
	return config, nil
}

func (b builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	conn := policy.ConnOf(cc)
	f := &foreign{builder: b.inner, subConns: make(map[*subConn]struct{}), reported: connectivity.Connecting}
	f.conn = &clientConn{Conn: conn, policy: f, calls: calls{post: conn.Post}}
	f.inner = b.inner.Build(f.conn, opts)
	return f
}

// foreign belongs to the owner.
type foreign struct {
	builder balancer.Builder
	conn    *clientConn
	inner   balancer.Balancer

	endpoints endpoints
	subConns  map[*subConn]struct{} // those that are not shut down
	made      int                   // SubConns, ever
	reported  connectivity.State
	err       error
	pending   bool
	closed    bool
}

func (f *foreign) UpdateClientConnState(s balancer.ClientConnState) error {
	// grpc's channel also gives policies the flat list.
	for _, e := range s.ResolverState.Endpoints {
		s.ResolverState.Addresses = append(s.ResolverState.Addresses, e.Addresses...)
	}
	f.endpoints = endpointsOf(s.ResolverState.Endpoints)
	for sc := range f.subConns {
		sc.locate()
	}
	f.changed()
	var err error
	f.conn.calls.within(func() { err = f.inner.UpdateClientConnState(s) })
	return err
}

// changed makes the tree summarize the policy again.
func (f *foreign) changed() { f.conn.Mark(f, &f.pending) }

func (f *foreign) Report() {}

func (f *foreign) ResolverError(err error) {
	f.conn.calls.within(func() { f.inner.ResolverError(err) })
}

// UpdateSubConnState is not called: SubConns have listeners.
func (f *foreign) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (f *foreign) ExitIdle() { f.conn.calls.within(f.inner.ExitIdle) }

func (f *foreign) Close() {
	f.closed = true
	f.conn.calls.within(f.inner.Close)
	f.conn.calls.close()
	for sc := range f.subConns { // policies may leave them behind
		sc.shutdown()
	}
}
