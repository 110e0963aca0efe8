package lbdgrpc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

// updatePause is the time between two updates of the picker, at least: each wakes all RPCs that are queued.
const updatePause = 100 * time.Microsecond

func init() { balancer.Register(balancers{}) }

type balancers struct{}

func (balancers) Name() string { return Policy }

func (balancers) Build(channel balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	b := &lbBalancer{
		channel: channel,
		wake:    make(chan struct{}, 1),
		conns:   map[string]*conn{},
		queued:  map[context.Context]*rpc{},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	go b.run()
	return b
}

// errNoSource is the error of a channel with another resolver.
var errNoSource = errors.New("the balancer " + Policy + " needs a target " + Scheme + ":///CLUSTER")

// conn is the connection to an endpoint.
type conn struct {
	subConn balancer.SubConn
	state   connectivity.State // TRANSIENT_FAILURE lasts until READY
	err     error              // of TRANSIENT_FAILURE
	timeout *time.Timer        // makes CONNECTING a TRANSIENT_FAILURE: gRPC itself gives a connection 20 s
}

// lbBalancer keeps a connection to each endpoint, and the RPCs that wait for a pick.
type lbBalancer struct {
	channel balancer.ClientConn
	ctx     context.Context // done after Close
	cancel  context.CancelFunc
	wake    chan struct{} // has an element if the picker of the channel has to be updated

	mu     sync.Mutex
	source source
	conns  map[string]*conn
	picker *picker // nil if conns has changed
	state  connectivity.State
	queued map[context.Context]*rpc
	closed bool
}

// run updates the picker of the channel: it is the only caller of UpdateState.
func (b *lbBalancer) run() {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-pause.C:
		case <-b.ctx.Done():
			return
		}
		select {
		case <-b.wake:
		case <-b.ctx.Done():
			return
		}
		b.mu.Lock()
		if b.picker == nil {
			b.buildPicker()
		}
		update := balancer.State{ConnectivityState: b.state, Picker: b.picker}
		b.mu.Unlock()
		b.channel.UpdateState(update)
		pause.Reset(updatePause)
	}
}

// update makes run update the picker.
func (b *lbBalancer) update() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// buildPicker is called with mu held.
func (b *lbBalancer) buildPicker() {
	p := &picker{balancer: b, source: b.source, conns: make(map[string]balancer.SubConn, len(b.conns))}
	states := balancer.ConnectivityStateEvaluator{}
	b.state = connectivity.TransientFailure // without endpoints
	for address, c := range b.conns {
		b.state = states.RecordTransition(connectivity.Shutdown, c.state)
		p.conns[address] = nil
		switch c.state {
		case connectivity.Ready:
			p.conns[address], p.ready = c.subConn, true
		case connectivity.TransientFailure:
			p.err = c.err
		default:
			p.connecting = true
		}
	}
	b.picker = p
}

// UpdateClientConnState makes the connections to the endpoints of the resolver.
func (b *lbBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	from, ok := s.ResolverState.Attributes.Value(sourceKey{}).(source)
	if !ok {
		b.update() // RPCs fail, and do not wait
		return errNoSource
	}
	wanted := map[string]bool{}
	for _, endpoint := range s.ResolverState.Endpoints {
		wanted[endpoint.Addresses[0].Addr] = true
	}
	b.mu.Lock()
	b.source = from
	for address, c := range b.conns {
		if !wanted[address] {
			c.timeout.Stop()
			c.subConn.Shutdown()
			delete(b.conns, address)
		}
	}
	b.picker = nil
	b.mu.Unlock()
	b.connect(slices.Collect(maps.Keys(wanted)))
	b.update()
	return nil
}

// connect makes the connections that are missing.
func (b *lbBalancer) connect(addresses []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, address := range addresses {
		if b.conns[address] != nil || b.closed {
			continue
		}
		c := &conn{state: connectivity.Connecting}
		subConn, err := b.channel.NewSubConn([]resolver.Address{{Addr: address}}, balancer.NewSubConnOptions{
			HealthCheckEnabled: true,
			StateListener:      func(s balancer.SubConnState) { b.connChanged(address, c, s) },
		})
		if err != nil {
			continue // the channel is closed
		}
		c.subConn = subConn
		limit := b.source.client.ConnectTimeout()
		c.timeout = time.AfterFunc(limit, func() { b.connectTimedOut(address, c, limit) })
		b.conns[address] = c
		b.picker = nil
		subConn.Connect()
	}
}

func (b *lbBalancer) connChanged(address string, c *conn, s balancer.SubConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns[address] != c {
		return
	}
	if s.ConnectivityState == connectivity.Idle {
		c.subConn.Connect()
	}
	if c.state == connectivity.TransientFailure && (s.ConnectivityState == connectivity.Idle || s.ConnectivityState == connectivity.Connecting) {
		return // as gRPC's round_robin: an endpoint that failed is not waited for
	}
	switch s.ConnectivityState {
	case connectivity.Idle:
		c.timeout.Reset(b.source.client.ConnectTimeout())
	case connectivity.Ready, connectivity.TransientFailure:
		c.timeout.Stop()
	}
	c.state, c.err = s.ConnectivityState, s.ConnectionError
	b.picker = nil
	b.update()
}

// connectTimedOut lets RPCs go to other endpoints than one that does not answer.
func (b *lbBalancer) connectTimedOut(address string, c *conn, limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns[address] != c || c.state == connectivity.Ready || c.state == connectivity.TransientFailure {
		return
	}
	c.state, c.err = connectivity.TransientFailure, fmt.Errorf("no connection within %v", limit)
	b.picker = nil
	b.update()
}

// ResolverError does nothing: the client uses its picks for as long as it is configured to.
func (b *lbBalancer) ResolverError(error) { b.update() }

// UpdateSubConnState is not called: connections have a listener.
func (b *lbBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle does nothing: connections are never left idle.
func (b *lbBalancer) ExitIdle() {}

// Close ends the goroutine, the connections, and the picks of queued RPCs.
func (b *lbBalancer) Close() {
	b.cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for address, c := range b.conns {
		c.timeout.Stop()
		c.subConn.Shutdown()
		delete(b.conns, address)
	}
	for ctx, r := range b.queued {
		delete(b.queued, ctx)
		r.giveUp()
	}
}
