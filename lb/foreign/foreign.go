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
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Lookup returns the policy of that name in grpc's registry, wrapped for lbd's trees,
// or nil.
func Lookup(name string) policy.Factory {
	if b := balancer.Get(name); b != nil {
		return Wrap(b)
	}
	return nil
}

// Wrap returns a builder of inner's policies in lbd's trees.
func Wrap(inner balancer.Builder) policy.Factory { return builder{inner} }

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

func (b builder) Build(conn *policy.Conn) policy.Policy {
	f := &foreign{builder: b.inner, subConns: make(map[*subConn]struct{}), reported: connectivity.Connecting}
	f.conn = &clientConn{Conn: conn, policy: f, calls: calls{post: conn.Post}}
	f.inner = b.inner.Build(f.conn, balancer.BuildOptions{})
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

func (f *foreign) Update(c policy.Child) error {
	s := balancer.ClientConnState{BalancerConfig: c.Config}
	s.ResolverState.Endpoints = make([]resolver.Endpoint, len(c.Endpoints))
	for i, value := range c.Endpoints {
		e := policy.ResolverEndpoint(value)
		s.ResolverState.Endpoints[i] = e
		// grpc's channel also gives policies the flat list.
		s.ResolverState.Addresses = append(s.ResolverState.Addresses, e.Addresses...)
	}
	f.endpoints = endpointsOf(c.Endpoints)
	for sc := range f.subConns {
		sc.locate()
	}
	f.changed()
	var err error
	f.conn.calls.within(func() { err = f.inner.UpdateClientConnState(s) })
	if errors.Is(err, balancer.ErrBadResolverState) {
		return nil // it asks for a new resolution, and accepts the part
	}
	return err
}

// changed makes the tree summarize the policy again.
func (f *foreign) changed() { f.conn.Mark(f, &f.pending) }

func (f *foreign) Report() {}

func (f *foreign) Close() {
	f.closed = true
	f.conn.calls.within(f.inner.Close)
	f.conn.calls.close()
	for sc := range f.subConns { // policies may leave them behind
		sc.shutdown()
	}
}

// Use gives reports to the SubConns that are READY.
func (f *foreign) Use(list []*policy.Usage) {
	for sc := range f.subConns {
		if sc.state != connectivity.Ready {
			continue
		}
		for _, u := range list {
			if !u.Found && sc.endpoint.Has(u.Address) {
				sc.upstream.Load().Use(u)
			}
		}
	}
}

// endpoints are those of the config, in its order.
type endpoints struct {
	list      []*resource.Endpoint
	byAddress map[string]int // places in list
}

func endpointsOf(all []*resource.Endpoint) endpoints {
	e := endpoints{list: make([]*resource.Endpoint, 0, len(all)), byAddress: make(map[string]int, len(all))}
	for _, value := range all {
		if len(value.Addresses) == 0 {
			continue
		}
		for _, a := range value.Addresses {
			if _, ok := e.byAddress[a]; !ok {
				e.byAddress[a] = len(e.list)
			}
		}
		e.list = append(e.list, value)
	}
	return e
}

// connections are the SubConns of one endpoint, which may have one for each address:
// the best, and the best with an error.
type connections struct{ best, failed *subConn }

// connections returns those of each endpoint of the config, in its order, and then
// SubConns to other addresses in the order of their creation.
func (f *foreign) connections() []connections {
	of := make([]connections, len(f.endpoints.list))
	var others []connections
	for sc := range f.subConns {
		if sc.place < 0 {
			others = append(others, connections{sc, sc})
			continue
		}
		c := &of[sc.place]
		c.best = better(c.best, sc)
		if sc.lastErr != nil {
			c.failed = better(c.failed, sc)
		}
	}
	slices.SortFunc(others, func(a, b connections) int { return cmp.Compare(a.best.number, b.best.number) })
	return slices.Concat(of, others)
}

// better returns the SubConn in the better state, or the older one. was may be nil.
func better(was, sc *subConn) *subConn {
	if was == nil {
		return sc
	}
	if r := cmp.Compare(rank(sc.state), rank(was.state)); r < 0 || r == 0 && sc.number < was.number {
		return sc
	}
	return was
}

// rank is lower for a better state, in gRPC's order.
func rank(s connectivity.State) int {
	return slices.Index([]connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure}, s)
}

// state is that of the best; IDLE without a SubConn.
func (c connections) state() connectivity.State {
	if c.best == nil {
		return connectivity.Idle
	}
	return c.best.state
}

func (f *foreign) Describe() policy.Node {
	n := policy.Node{Policy: f.builder.Name(), State: f.reported, Err: f.err, Endpoints: []policy.EndpointNode{}}
	for i, c := range f.connections() {
		e := policy.EndpointNode{State: c.state()}
		if i < len(f.endpoints.list) {
			e.Endpoint = f.endpoints.list[i]
		} else {
			e.Endpoint = c.best.endpoint
		}
		if e.State == connectivity.Ready {
			e.Address, _ = c.best.connected()
		} else if c.failed != nil {
			e.LastErr = c.failed.lastErr
		}
		n.Endpoints = append(n.Endpoints, e)
	}
	return n
}

func (f *foreign) Summarize() policy.Summary {
	s := policy.Summary{State: f.reported, Priority: -1}
	for _, c := range f.connections() {
		s.Census.Count(c.state(), 1)
	}
	return s
}
