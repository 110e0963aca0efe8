package lb

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Back-off between connection attempts, as gRPC has it.
const (
	backoffBase   = time.Second
	backoffFactor = 1.6
	backoffJitter = 0.2
	backoffMax    = 120 * time.Second
)

// Connector finds out whether an endpoint can be connected to.
type Connector interface {
	// Start begins to connect to an endpoint, at whichever of its addresses
	// connects first where the earlier are tried first, and returns at once. It
	// does not change addresses, and may keep them. What comes of it is told to
	// report, from any goroutine: first whether it connected; then, if it did, once
	// at most that the connection was lost. After stop nothing is begun any more; a
	// report on its way may still come.
	Start(addresses []string, report func(Connection)) (stop func())
}

// dialing is a Connector that dials: only so many at a time, and over TLS where
// it is to. It can be compared.
type dialing interface {
	Connector
	// inTurn returns the Connector whose attempts are made in t's turn, for root: the
	// cluster of t, or an aggregate that picks choose.
	inTurn(t turn, root string) dialing
	// secured returns the Connector whose connections are as s says.
	secured(s *resource.Security) dialing
	// named returns the Connector for an endpoint of that hostname, which TLS may
	// go by.
	named(hostname string) dialing
}

// Connection is what a Connector reports.
type Connection struct {
	// Address is the address that connected, or, where none did, the one that
	// failed last; empty where the connection was lost.
	Address string
	// Err is why that failed, or why the connection was lost.
	Err error
}

// subConn is one endpoint's connectivity (gRPC's addrConn): IDLE → CONNECTING →
// READY or TRANSIENT_FAILURE; after the back-off, or a lost connection, IDLE
// again. A connection that is lost before it has lived for backoffBase is an
// attempt that failed: what accepts connections and closes them at once is not
// to be connected to without end.
type subConn struct {
	balancer.SubConn // grpc wants it embedded; every method is overridden

	// Fixed after build.
	channel  *Channel
	root     string // the clusters that events name
	cluster  string
	listener func(balancer.SubConnState)

	ready atomic.Pointer[string] // the connected address

	// Owner only.
	connector Connector // nil takes the endpoint as connected
	addresses []string
	state     connectivity.State
	failures  int       // attempts that failed in a row
	readyAt   time.Time // of the last attempt that connected
	attempt   *attempt
	backoff   *time.Timer
}

// attempt is one connection attempt, and the connection that comes of it.
type attempt struct{ stop func() }

func newSubConn(c *Channel, addrs []resolver.Address, opts balancer.NewSubConnOptions) (*subConn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("a SubConn needs an address")
	}
	link := policy.LinkOf(addrs)
	connector, ok := c.options.Connectors[link.Mode]
	if !ok {
		return nil, fmt.Errorf("connect mode %q is not available", link.Mode)
	}
	if d, ok := connector.(dialing); ok {
		connector = d.inTurn(turn{timers: c, cluster: link.Cluster, batch: c.batch}, link.Root).secured(link.Security)
	}
	sc := &subConn{channel: c, root: link.Root, cluster: link.Cluster, connector: connector, listener: opts.StateListener, state: connectivity.Idle}
	sc.setAddresses(addrs)
	return sc, nil
}

// setAddresses reports whether TLS goes by another name than before.
func (s *subConn) setAddresses(addrs []resolver.Address) (renamed bool) {
	s.addresses = make([]string, len(addrs))
	for i, a := range addrs {
		s.addresses[i] = a.Addr
	}
	d, ok := s.connector.(dialing)
	if !ok {
		return false
	}
	before := d
	d = d.named(policy.EndpointOfAddresses(addrs).Hostname)
	s.connector = d
	return d != before
}

// Ready returns the address that is connected.
func (s *subConn) Ready() (string, bool) {
	if a := s.ready.Load(); a != nil {
		return *a, true
	}
	return "", false
}

// Connect starts a connection attempt, unless one is under way or waits for its
// back-off. The listener hears of it after the caller has returned.
func (s *subConn) Connect() {
	if s.state != connectivity.Idle {
		return
	}
	s.change(connectivity.Connecting, nil)
	if s.connector == nil {
		s.ready.Store(&s.addresses[0])
		s.change(connectivity.Ready, nil)
		return
	}
	a := new(attempt)
	s.attempt = a
	a.stop = s.connector.Start(s.addresses, func(c Connection) {
		s.channel.owner.Post(func() { s.connection(a, c) })
	})
}

// connection takes what the Connector reports of attempt a.
func (s *subConn) connection(a *attempt, c Connection) {
	if a != s.attempt {
		return // of an attempt that was given up
	}
	switch {
	case c.Err == nil:
		s.readyAt = time.Now()
		s.ready.Store(&c.Address)
		s.change(connectivity.Ready, nil)
	case s.state != connectivity.Ready:
		s.fail(c.Address, c.Err)
	case time.Since(s.readyAt) < backoffBase:
		s.fail(*s.ready.Load(), c.Err)
	default:
		lost := *s.ready.Load()
		s.disconnect()
		s.failures = 0
		s.change(connectivity.Idle, &policy.ConnectError{Address: lost, Err: c.Err})
	}
}

// fail ends an attempt that failed at address, and begins its back-off.
func (s *subConn) fail(address string, err error) {
	s.disconnect()
	pause := s.pause()
	s.failures++
	s.change(connectivity.TransientFailure, &policy.ConnectError{
		Address: address, RetryAt: time.Now().Add(pause), Err: err,
	})
	s.backoff = time.AfterFunc(pause, func() { s.channel.owner.Post(s.backedOff) })
}

func (s *subConn) backedOff() {
	if s.state == connectivity.TransientFailure {
		s.change(connectivity.Idle, nil)
	}
}

// pause is how long to wait after one more failure.
func (s *subConn) pause() time.Duration {
	d := float64(backoffBase) * math.Pow(backoffFactor, float64(s.failures))
	d = min(d, float64(backoffMax))
	draw := float64(s.channel.options.Draw()>>11) / (1 << 53) // in [0, 1)
	return time.Duration(d * (1 + backoffJitter*(2*draw-1)))
}

// change notes the state, and reports and tells the listener of it once the owner
// has finished what it is at.
func (s *subConn) change(to connectivity.State, err error) {
	from := s.state
	s.state = to
	s.channel.owner.Later(func() {
		if s.state == connectivity.Shutdown && to != connectivity.Shutdown {
			return
		}
		if to != connectivity.Shutdown {
			s.channel.options.Events(policy.ConnectionChanged{
				Root: s.root, Cluster: s.cluster, Address: s.addresses[0], From: from, To: to, Err: err, At: time.Now(),
			})
		}
		if s.listener != nil {
			s.listener(balancer.SubConnState{ConnectivityState: to, ConnectionError: err})
		}
	})
}

// disconnect gives up the attempt and its connection.
func (s *subConn) disconnect() {
	s.ready.Store(nil)
	if s.attempt != nil {
		s.attempt.stop()
		s.attempt = nil
	}
}

// Shutdown ends the SubConn. The listener hears SHUTDOWN last.
func (s *subConn) Shutdown() {
	if s.state == connectivity.Shutdown {
		return
	}
	s.disconnect()
	if s.backoff != nil {
		s.backoff.Stop()
	}
	s.change(connectivity.Shutdown, nil)
}

// UpdateAddresses keeps the connection where its address is still among the new
// ones and TLS still goes by the same name, and an attempt where they are the same
// in another order; else it connects anew. None at all changes nothing.
func (s *subConn) UpdateAddresses(addrs []resolver.Address) {
	if len(addrs) == 0 {
		return
	}
	before := s.addresses
	renamed := s.setAddresses(addrs)
	if !renamed && policy.SameAddresses(s.addresses, before) || s.state != connectivity.Ready && s.state != connectivity.Connecting {
		return
	}
	if at := s.ready.Load(); at != nil && slices.Contains(s.addresses, *at) && !renamed {
		return
	}
	s.disconnect()
	s.failures = 0 // of others
	s.change(connectivity.Idle, nil)
	s.Connect()
}

// GetOrBuildProducer is not called: no policy of lbd's has a use for Producers, and
// package foreign keeps those of others.
func (s *subConn) GetOrBuildProducer(balancer.ProducerBuilder) (balancer.Producer, func()) {
	return nil, func() {}
}

// RegisterHealthListener tells f that the SubConn is READY: lbd learns health
// from EDS.
func (s *subConn) RegisterHealthListener(f func(balancer.SubConnState)) {
	s.channel.owner.Later(func() {
		if s.state == connectivity.Ready {
			f(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	})
}
