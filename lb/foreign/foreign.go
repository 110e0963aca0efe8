// Package foreign runs endpoint policies that are not lbd's: any builder that is
// registered with grpc's balancer.Register.
//
// Such a policy keeps grpc's contract, and only that: it may call its ClientConn
// and its SubConns from any goroutine, and it does not know a [policy.Call]. The
// tree's owner runs what it calls, in the order of the calls: what it calls while
// the owner is in it before the owner leaves it, so that a config has been
// answered when it has been taken; anything else in a batch of its own. What it
// picks is taken as one step that nobody can look into.
//
// Its SubConns say no more of an endpoint's health than that it is READY, and the
// calls of its Producers are answered UNIMPLEMENTED: lbd makes none.
package foreign

import (
	"encoding/json"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
)

// Lookup returns the policy that is registered with grpc under name, ready for
// lbd's trees, or nil.
func Lookup(name string) balancer.Builder {
	if b := balancer.Get(name); b != nil {
		return Wrap(b)
	}
	return nil
}

// Wrap returns a builder that runs inner's policies in lbd's trees.
func Wrap(inner balancer.Builder) balancer.Builder { return builder{inner} }

type builder struct{ inner balancer.Builder }

// Name is the wrapped builder's.
func (b builder) Name() string { return b.inner.Name() }

// ParseConfig is the wrapped builder's. A builder without one takes no config.
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

// Build builds the wrapped policy.
func (b builder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	conn := policy.ConnOf(cc)
	f := &foreign{builder: b.inner, subConns: make(map[*subConn]struct{}), reported: connectivity.Connecting}
	f.conn = &clientConn{Conn: conn, policy: f, calls: calls{post: conn.Post}}
	f.inner = b.inner.Build(f.conn, opts)
	return f
}

// foreign belongs to the owner, all of it.
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
	// grpc's own channel gives policies the flat list as well.
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

// changed notes that the summary is another.
func (f *foreign) changed() { f.conn.Mark(f, &f.pending) }

// Report does nothing: to be marked is what lets the summary be made anew.
func (f *foreign) Report() {}

func (f *foreign) ResolverError(err error) {
	f.conn.calls.within(func() { f.inner.ResolverError(err) })
}

// UpdateSubConnState is not called: SubConns have listeners.
func (f *foreign) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

func (f *foreign) ExitIdle() { f.conn.calls.within(f.inner.ExitIdle) }

// Close closes the policy, which hears of nothing any more.
func (f *foreign) Close() {
	f.closed = true
	f.conn.calls.within(f.inner.Close)
	f.conn.calls.close()
	for sc := range f.subConns { // grpc lets policies leave them behind
		sc.shutdown()
	}
}
