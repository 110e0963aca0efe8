package lb

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Connector finds out whether an endpoint accepts connections.
type Connector interface {
	// Start begins to connect to an endpoint, preferably at the earlier addresses, and
	// returns at once. It does not change addresses, and may keep them. It calls
	// report, from any goroutine: first with the result; then, if that was a
	// connection, once at most with its loss. stop cancels everything; a report that
	// is under way may still follow.
	Start(addresses []string, report func(Connection)) (stop func())
}

// Connection is what a Connector reports.
type Connection struct {
	// Address is the address that connected, or the last one that failed; empty if the
	// connection was lost.
	Address string
	// Err is why it failed or was lost.
	Err error
}

// subConn is one endpoint's connectivity (gRPC's addrConn): IDLE → CONNECTING → READY
// or TRANSIENT_FAILURE; after the back-off, or when the connection is lost, IDLE
// again. A connection that is lost within a second counts as a failed attempt, so
// that lbd does not reconnect without a pause to an endpoint that closes its
// connections at once.
type subConn struct {
	policy.Connection

	// Fixed after build.
	channel *Channel
	link    *policy.Link

	// Owner only. There are many SubConns: the small numbers share a word.
	addresses *[]string // of the endpoint, if they are the same
	attempt   *attempt
	pause     *pause // in TRANSIENT_FAILURE
	batch     uint32 // the channel's in which it was made
	failures  uint16 // attempts that failed in a row
	current   uint8  // the connectivity.State
	woken     bool   // the last back-off ended because another one could connect
}

// attempt is one connection attempt, and the connection that results.
type attempt struct {
	stop    func()    // nil for a link
	link    *tcpLink  // of a Dialer; nil for another Connector's
	readyAt time.Time // when it connected
}

func (a *attempt) end() {
	if a.link != nil {
		a.link.stop()
	} else {
		a.stop()
	}
}

// addressesOf returns the addresses as strings: those of the endpoint, if they are the same.
func addressesOf(addrs []resolver.Address, e *resource.Endpoint) *[]string {
	if slices.EqualFunc(addrs, e.Addresses, func(a resolver.Address, own string) bool { return a.Addr == own }) {
		return &e.Addresses
	}
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a.Addr
	}
	return &out
}

func (s *subConn) state() connectivity.State { return connectivity.State(s.current) }

// connector returns the Connector; nil takes the endpoint as connected.
func (s *subConn) connector() Connector {
	c := s.channel.options.Connectors[s.link.Mode]
	d, ok := c.(tcpConnector)
	if !ok {
		return c
	}
	d.group = dialGroup{channel: s.channel, cluster: s.link.Cluster, batch: uint64(s.batch)}
	d.root, d.security = s.link.Root, s.link.Security
	return d.named(s.Upstream().Endpoint.Hostname)
}

// Connect starts a connection attempt if the state is IDLE. The listener is called
// after the caller has returned.
func (s *subConn) Connect() {
	if s.state() != connectivity.Idle {
		return
	}
	s.change(connectivity.Connecting, nil)
	connector := s.connector()
	if connector == nil {
		s.SetConnected((*s.addresses)[0])
		s.change(connectivity.Ready, nil)
		return
	}
	a := new(attempt)
	s.attempt = a
	report := func(c Connection) {
		s.channel.owner.Post(func() { s.connection(a, c) })
	}
	if c, ok := connector.(tcpConnector); ok {
		a.link = c.begin(*s.addresses, report)
	} else {
		a.stop = connector.Start(*s.addresses, report)
	}
}

// Recheck has the Dialer check soon whether a READY endpoint still accepts connections.
func (s *subConn) Recheck() (checked bool) {
	if s.state() == connectivity.Ready && s.attempt != nil && s.attempt.link != nil {
		l := s.attempt.link
		l.dialer.rechecks.soon(l, s.Connected())
	}
	return s.channel.options.Connectors[s.link.Mode] != nil
}

// connection handles a report on attempt a.
func (s *subConn) connection(a *attempt, c Connection) {
	if a != s.attempt {
		return // of an attempt that was given up
	}
	switch {
	case c.Err == nil:
		a.readyAt = time.Now()
		s.SetConnected(c.Address)
		s.change(connectivity.Ready, nil)
	case s.state() != connectivity.Ready:
		s.fail(c.Address, c.Err)
	case time.Since(a.readyAt) < backoff.DefaultConfig.BaseDelay:
		s.fail(s.Connected(), c.Err)
	default:
		lost := s.Connected()
		s.disconnect()
		s.failures, s.woken = 0, false
		s.change(connectivity.Idle, &policy.ConnectError{Address: lost, Err: c.Err})
	}
}

// fail ends an attempt, and begins its back-off.
func (s *subConn) fail(address string, err error) {
	s.disconnect()
	pause := s.nextPause()
	s.failures = min(s.failures, math.MaxUint16-1) + 1
	s.change(connectivity.TransientFailure, &policy.ConnectError{
		Address: address, RetryAt: time.Now().Add(pause), Err: err,
	})
	s.backOff(pause)
}

// backOff begins a back-off.
func (s *subConn) backOff(d time.Duration) {
	p := &pause{addresses: *s.addresses, cluster: s.link.Cluster, root: s.link.Root, spent: s.woken, began: time.Now()}
	p.end = func(why resumption) { s.channel.owner.Post(func() { s.resume(p, why) }) }
	p.timer = time.AfterFunc(d, func() { p.end(afterPause) })
	s.pause = p
	if c, ok := s.connector().(tcpConnector); ok {
		p.needs = c.proof()
		c.dialer.pauses.add(p)
	}
}

// resume leaves TRANSIENT_FAILURE. Of two back-offs in a row, only one ends early because of
// a success elsewhere: an endpoint that accepts connections and closes them would else be
// dialed by two clusters in turn without a pause.
func (s *subConn) resume(p *pause, why resumption) {
	if s.pause != p {
		return
	}
	s.endPause()
	s.woken = why == afterSuccess
	if why == afterReset {
		s.failures = 0
	}
	s.change(connectivity.Idle, nil)
}

// endPause forgets the back-off, if there is one.
func (s *subConn) endPause() {
	if s.pause == nil {
		return
	}
	s.pause.timer.Stop()
	if c, ok := s.connector().(tcpConnector); ok {
		c.dialer.pauses.remove(s.pause)
	}
	s.pause = nil
}

// nextPause returns the next back-off between connection attempts, as gRPC has it, apart from
// the limit.
func (s *subConn) nextPause() time.Duration {
	c := backoff.DefaultConfig
	d := min(float64(c.BaseDelay)*math.Pow(c.Multiplier, float64(s.failures)), float64(cmp.Or(s.link.MaxBackoff, c.MaxDelay)))
	return time.Duration(d * (1 + c.Jitter*(2*policy.UnitOf(s.channel.options.Draw())-1)))
}

// change sets the state. It reports the change and calls the listener when the owner
// has finished the current function.
func (s *subConn) change(to connectivity.State, err error) {
	from := s.state()
	s.current = uint8(to)
	s.channel.owner.Later(func() {
		if s.state() == connectivity.Shutdown && to != connectivity.Shutdown {
			return
		}
		if to != connectivity.Shutdown {
			s.channel.tree.Events(policy.ConnectionChanged{
				Root: s.link.Root, Cluster: s.link.Cluster, Address: (*s.addresses)[0], From: from, To: to, Err: err,
			})
		}
		s.Report(balancer.SubConnState{ConnectivityState: to, ConnectionError: err})
	})
}

// disconnect cancels the attempt or closes its connection.
func (s *subConn) disconnect() {
	s.SetConnected("")
	if s.attempt != nil {
		s.attempt.end()
		s.attempt = nil
	}
}

// Shutdown ends the SubConn. The listener's last state is SHUTDOWN.
func (s *subConn) Shutdown() {
	if s.state() == connectivity.Shutdown {
		return
	}
	s.disconnect()
	s.endPause()
	s.change(connectivity.Shutdown, nil)
}

// UpdateAddresses keeps the connection if its address is in addrs and TLS verifies the
// same name, and an attempt if the addresses are the same in any order; else it
// reconnects. No addresses change nothing.
func (s *subConn) UpdateAddresses(addrs []resolver.Address) {
	if len(addrs) == 0 {
		return
	}
	before, connector := *s.addresses, s.connector()
	e := policy.EndpointOfAddresses(addrs)
	s.addresses = addressesOf(addrs, e)
	s.Replace(e)
	d, ok := connector.(tcpConnector)
	renamed := ok && s.connector() != Connector(d) // TLS verifies another name
	if !renamed && policy.SameAddresses(*s.addresses, before) || s.state() != connectivity.Ready && s.state() != connectivity.Connecting {
		return
	}
	if at := s.Connected(); at != "" && slices.Contains(*s.addresses, at) && !renamed {
		return
	}
	s.disconnect()
	s.failures, s.woken = 0, false // of others
	s.change(connectivity.Idle, nil)
	s.Connect()
}

// GetOrBuildProducer is not called: no policy of lbd uses Producers, and package
// foreign has those of others.
func (s *subConn) GetOrBuildProducer(balancer.ProducerBuilder) (balancer.Producer, func()) {
	return nil, func() {}
}

// RegisterHealthListener reports READY to f: lbd gets health from EDS.
func (s *subConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	s.channel.owner.Later(func() {
		if s.state() == connectivity.Ready {
			f(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	})
}

// clientConn is the ClientConn of the topmost policy.
type clientConn struct{ channel *Channel }

func (cc *clientConn) NewSubConn(addrs []resolver.Address, opts balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("a SubConn needs an address")
	}
	link := policy.LinkOf(addrs)
	if _, ok := cc.channel.options.Connectors[link.Mode]; !ok {
		return nil, fmt.Errorf("connect mode %q is not available", link.Mode)
	}
	sc := &subConn{channel: cc.channel, link: link, batch: uint32(cc.channel.batch)}
	sc.addresses = addressesOf(addrs, sc.Init(sc, addrs, opts.StateListener))
	return sc, nil
}

// UpdateState keeps the state until the end of the batch, which publishes it.
func (cc *clientConn) UpdateState(s balancer.State) {
	if !cc.channel.closed {
		cc.channel.reported = &s
	}
}
