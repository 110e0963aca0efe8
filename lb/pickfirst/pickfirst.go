// Package pickfirst is gRPC's pick_first: addresses are tried in order, and every
// pick goes to the first that connects (gRFC A62; A61 for Happy Eyeballs).
package pickfirst

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Name is the policy's name in gRPC's registry.
const Name = "pick_first"

// Config is pick_first's config.
type Config struct {
	serviceconfig.LoadBalancingConfig

	// ShuffleAddressList makes the order of the endpoints random.
	ShuffleAddressList bool
}

func readConfig(r *policy.ConfigReader) (c Config) {
	r.Read(map[string]any{"shuffleAddressList": &c.ShuffleAddressList}, nil)
	return c
}

// Builder returns the builder of pick_first policies, whose config is a [Config], or
// none. They shuffle endpoints by [policy.WeightsOf].
func Builder() policy.Builder {
	return policy.NewChoiceBuilder(Name, resource.PolicyTraits{IgnoresWeights: true, KeepsEndpoint: true}, readConfig, func(conn *policy.Conn) policy.Policy {
		b := &pickFirst{state: connectivity.Connecting}
		b.Init(conn, Name, b)
		return b
	})
}

// pickFirst tries its addresses in passes. In the first pass, the next attempt begins
// when one has failed, or after [policy.AttemptDelay]. The pass ends with the first
// READY address, which then stays the only one, or when all have failed. After that,
// each is retried on its own until one is READY. When the connection is lost, the
// policy is IDLE until a pick begins another first pass.
//
// All of it belongs to the owner.
type pickFirst struct {
	policy.Base

	endpoints []*endpoint // in the config's order
	census    policy.Census
	list      []*address // in the order in which they are tried
	at        int        // the last that was begun in this pass; len(list) past the end
	subConns  int        // how many of list have one

	firstPass bool
	delay     *policy.ConnectTimer // until the next is begun too
	hopes     int                  // how many of list have not failed in the first pass
	failures  int                  // after it, since one was reported

	state connectivity.State
}

// address is one address of an endpoint.
type address struct {
	resolver.Address

	of      *endpoint
	subConn balancer.SubConn   // nil unless it is tried, or READY
	state   connectivity.State // IDLE without SubConn
	failed  bool               // in this pass
	sticky  bool               // it failed once: that it tries again is no news
	lastErr error
}

func (b *pickFirst) Update(given policy.Child) error {
	cfg, ok := given.Config.(Config)
	if !ok && given.Config != nil {
		return fmt.Errorf("%s: config is a %T", Name, given.Config)
	}
	b.delay.Stop()
	b.Mark()
	endpoints := newEndpoints(given.Endpoints)
	order := endpoints
	if cfg.ShuffleAddressList {
		order = shuffle(endpoints, policy.WeightsOf(given.Localities), b.Conn.Draw())
	}
	var list []*address
	for _, e := range order {
		list = append(list, e.addresses...)
	}
	were := len(b.list)
	serving := b.serving()
	b.replace(endpoints, policy.Interleave(list, func(a *address) string { return a.Addr }))
	switch {
	case len(b.list) == 0:
		b.fail(policy.ErrNoEndpoints)
	case serving != nil && serving.subConn != nil:
		b.at = slices.Index(b.list, serving)
	case serving != nil || were == 0 || b.state == connectivity.Connecting:
		b.become(connectivity.Connecting)
		b.startPass()
	case b.state == connectivity.TransientFailure:
		b.startPass()
	}
	return nil
}

// serving is the address of picks, or nil.
func (b *pickFirst) serving() *address {
	if b.state != connectivity.Ready {
		return nil
	}
	return b.list[b.at]
}

// Use gives a report to the endpoint of picks.
func (b *pickFirst) Use(list []*policy.Usage) {
	a := b.serving()
	if a == nil || a.subConn == nil {
		return
	}
	for _, u := range list {
		if !u.Found && slices.ContainsFunc(a.of.addresses, func(a *address) bool { return a.Addr == u.Address || a.Addr == resource.CanonicalAddress(u.Address) }) {
			policy.ConnectionOf(a.subConn).Upstream().Use(u)
		}
	}
}

// replace applies another list. Addresses that remain keep their SubConn, if the
// hostname, which TLS may verify, is the same.
func (b *pickFirst) replace(endpoints []*endpoint, list []*address) {
	old := make(map[string]*address, len(b.list))
	for _, a := range b.list {
		old[a.Addr] = a
	}
	for i, a := range list {
		known := old[a.Addr]
		if known == nil || known.of.value.Hostname != a.of.value.Hostname {
			continue
		}
		delete(old, a.Addr)
		// Pickers hold the value.
		b.Stale = b.Stale || known.state == connectivity.Ready && known.of.value != a.of.value
		known.Address, known.of = a.Address, a.of
		a.of.addresses[slices.Index(a.of.addresses, a)] = known
		list[i] = known
	}
	for _, a := range old {
		b.shutdown(a)
	}
	b.endpoints, b.list, b.at = endpoints, list, 0
	b.census = policy.Census{}
	for _, e := range endpoints {
		b.census.Count(e.state(), 1)
	}
}

// change sets an address's SubConn and state.
func (b *pickFirst) change(a *address, sc balancer.SubConn, state connectivity.State) {
	b.census.Count(a.of.state(), -1)
	a.subConn, a.state = sc, state
	b.census.Count(a.of.state(), 1)
}

func (b *pickFirst) shutdown(a *address) {
	if a.subConn == nil {
		return
	}
	sc := a.subConn
	b.change(a, nil, connectivity.Idle)
	b.subConns--
	sc.Shutdown()
}

// startPass begins a first pass.
func (b *pickFirst) startPass() {
	b.firstPass, b.hopes, b.failures, b.at = true, len(b.list), 0, 0
	for _, a := range b.list {
		a.failed = false
	}
	b.try()
}

// try begins the next attempt of the pass, from b.at on.
func (b *pickFirst) try() {
	var err error
	for ; b.at < len(b.list); b.at++ {
		a := b.list[b.at]
		if a.subConn == nil {
			if err = b.connect(a); err != nil {
				b.lose(a)
				a.lastErr = err
				continue
			}
		}
		if a.state == connectivity.TransientFailure { // it failed before this pass, and waits for its back-off
			b.lose(a)
			err = a.lastErr
			continue
		}
		if a.state == connectivity.Idle {
			a.subConn.Connect()
		}
		b.delayNext()
		return
	}
	b.endPass(err)
}

func (b *pickFirst) connect(a *address) error {
	var sc balancer.SubConn
	sc, err := b.Conn.NewSubConn([]resolver.Address{a.Address}, balancer.NewSubConnOptions{
		StateListener: func(s balancer.SubConnState) {
			if a.subConn == sc {
				b.subConnState(a, s)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("new SubConn for %s: %w", a.Addr, err)
	}
	b.change(a, sc, connectivity.Idle)
	b.subConns++
	return nil
}

// delayNext starts the delay of the next attempt, if there is one.
func (b *pickFirst) delayNext() {
	if b.at+1 == len(b.list) {
		return // there is none to begin: the timer would do nothing
	}
	b.delay = b.Conn.AfterConnecting(policy.AttemptDelay, func() {
		b.at++
		b.try()
		b.Mark()
	})
}

// subConnState handles an address's new state.
func (b *pickFirst) subConnState(a *address, s balancer.SubConnState) {
	if s.ConnectivityState == connectivity.Shutdown {
		return
	}
	from := a.state
	b.change(a, a.subConn, s.ConnectivityState)
	if s.ConnectionError != nil {
		a.lastErr = s.ConnectionError
	}
	switch {
	case a.state == connectivity.Ready:
		a.lastErr = nil
		b.keep(a)
		b.at = slices.Index(b.list, a)
		b.become(connectivity.Ready)
	case from == connectivity.Ready, from == connectivity.Connecting && a.state == connectivity.Idle:
		// The latter was READY and lost before it was reported.
		b.keep(a)
		b.become(connectivity.Idle)
	case b.firstPass:
		b.tried(a)
	default:
		b.retried(a)
	}
	b.Mark()
}

// keep shuts all SubConns down but a's.
func (b *pickFirst) keep(a *address) {
	b.delay.Stop()
	for _, other := range b.list {
		if other != a {
			b.shutdown(other)
		}
	}
}

// tried handles a state in the first pass.
func (b *pickFirst) tried(a *address) {
	switch a.state {
	case connectivity.Connecting:
		if !a.sticky {
			b.become(connectivity.Connecting)
		}
	case connectivity.TransientFailure:
		b.lose(a)
		a.sticky = true
		if b.at == len(b.list) || b.list[b.at] != a { // the pass has gone on without waiting for it
			b.endPass(a.lastErr)
			return
		}
		b.delay.Stop()
		b.at++
		if b.at == len(b.list) {
			b.endPass(a.lastErr)
			return
		}
		b.try()
	}
}

// lose records that an address has failed in the first pass.
func (b *pickFirst) lose(a *address) {
	if !a.failed {
		a.failed = true
		b.hopes--
	}
}

// endPass ends the first pass if every address has failed.
func (b *pickFirst) endPass(err error) {
	if b.at < len(b.list) || b.hopes > 0 {
		return
	}
	b.firstPass = false
	b.fail(err)
	for _, a := range b.list {
		if a.subConn != nil && a.state == connectivity.Idle {
			a.subConn.Connect()
		}
	}
}

// retried handles a state after the first pass. The error is reported after as many
// failures as there are addresses.
func (b *pickFirst) retried(a *address) {
	switch a.state {
	case connectivity.TransientFailure:
		if b.failures++; b.failures >= b.subConns {
			b.failures = 0
			b.fail(a.lastErr)
		}
	case connectivity.Idle:
		a.subConn.Connect()
	}
}

func (b *pickFirst) fail(err error) {
	b.Err = err
	b.MarkStale()
	b.become(connectivity.TransientFailure)
}

func (b *pickFirst) become(state connectivity.State) {
	b.Stale = b.Stale || b.state != state || b.Reported == connectivity.Shutdown
	b.state = state
}

func (b *pickFirst) Report() {
	if b.Stale {
		b.Send(b.state, b.Picker)
	}
}

func (b *pickFirst) Picker(state connectivity.State) balancer.Picker {
	switch state {
	case connectivity.Ready:
		a := b.list[b.at]
		return &picker{policy.ConnectionOf(a.subConn).Replace(a.of.value)}
	case connectivity.Idle:
		return &idlePicker{policy: b}
	default:
		return b.Base.Picker(state)
	}
}

// exitIdle begins a first pass if the policy is IDLE.
func (b *pickFirst) exitIdle() {
	if b.Closed() || b.state != connectivity.Idle {
		return
	}
	b.become(connectivity.Connecting)
	b.startPass()
	b.Mark()
}

func (b *pickFirst) Close() {
	b.Base.Close()
	b.delay.Stop()
	for _, a := range b.list {
		b.shutdown(a)
	}
}

// Describe describes every endpoint, in the config's order; IDLE if it is not tried.
func (b *pickFirst) Describe() policy.Node {
	n := b.Base.Describe()
	n.Shares = true
	n.Endpoints = make([]policy.EndpointNode, len(b.endpoints))
	for i, e := range b.endpoints {
		n.Endpoints[i] = e.describe()
		if at := b.serving(); at != nil && at.of == e {
			n.Endpoints[i].Share = 1
		}
	}
	return n
}

func (b *pickFirst) Summarize() policy.Summary {
	return policy.Summary{State: b.Reported, Priority: -1, Census: b.census}
}
