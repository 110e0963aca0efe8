package policy

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Upstream is an endpoint as picks see it, in one cache line: its values, whether it can
// be used now, and where its picks are counted.
//
// It is fixed, apart from what is atomic. An endpoint whose values change gets another
// Upstream.
type Upstream struct {
	Endpoint *resource.Endpoint
	// Connection is the SubConn of a pick's result.
	Connection *Connection

	address atomic.Pointer[string] // the connected one; nil unless the endpoint can be used
	first   string                 // what address points to, unless the endpoint has several
	load    atomic.Pointer[LocalityLoad]

	// Place is where the caller of the channel has last counted a pick of the endpoint, and
	// Text what it shows of the endpoint at its first address. They belong to the caller.
	Place atomic.Pointer[Place]
	Text  atomic.Pointer[string]
}

// Pick makes the Upstream the result of a pick, which other pickers may still reject.
func (u *Upstream) Pick(c *Call) balancer.PickResult {
	c.Upstream, c.Endpoint = u, u.Endpoint
	return balancer.PickResult{SubConn: u.Connection}
}

// Address returns the connected address, unless the connection is lost or the endpoint
// is ejected. Any goroutine may call it.
func (u *Upstream) Address() (address string, ok bool) {
	if a := u.address.Load(); a != nil {
		return *a, true
	}
	return "", false
}

// LoadIn returns the load of the endpoint's locality in the counters of its cluster.
func (u *Upstream) LoadIn(c *ClusterCounters) *LocalityLoad {
	if l := u.load.Load(); l != nil && l.owner.Load() == c {
		return l
	}
	l := c.Locality(u.Endpoint.Locality) // for the first pick, or the first since the locality was forgotten
	u.load.Store(l)
	return l
}

// Use counts reported requests where every endpoint's are.
func (u *Upstream) Use(r *Usage) {
	r.Found = true
	if sc, ok := u.Connection.SubConn.(SubConn); ok && r.ConnectFailures > 0 {
		r.Checked = sc.Recheck()
	}
	if f, ok := u.Connection.Finisher().(Used); ok {
		f.Use(r)
	}
	if l := u.load.Load(); l != nil {
		l.use(r)
	}
}

// IsFirst reports whether an address of the endpoint is its first.
func (u *Upstream) IsFirst(address string) bool { return address == u.first }

// SubConn is a SubConn of lbd's trees. It embeds a [Connection].
type SubConn interface {
	balancer.SubConn
	// Base returns the Connection that the SubConn embeds.
	Base() *Connection
	// Recheck makes lbd check soon whether a READY endpoint can still be connected to. It
	// reports false if lbd never connects to it.
	Recheck() (checked bool)
}

// Connection is what all SubConns of lbd's trees have: it shows picks whether the
// endpoint can be used. It belongs to the owner, apart from Finisher.
type Connection struct {
	balancer.SubConn // the one that embeds it

	// Picks that began before the endpoint's values changed use the former.
	upstream, former *Upstream

	connected *string // the address; nil for none
	finisher  atomic.Pointer[Finisher]
	listener  func(balancer.SubConnState) // may be nil
	err       error                       // of the state reported last
	state     uint8                       // the connectivity.State reported last
	ejected   bool
	partial   bool
}

// ConnectionOf returns the Connection of a SubConn. It panics for one that is not of a
// tree of lbd's.
func ConnectionOf(sc balancer.SubConn) *Connection {
	return sc.(SubConn).Base() //nolint:errcheck,forcetypeassert // see above
}

// Base returns c.
func (c *Connection) Base() *Connection { return c }

// Init sets the SubConn that embeds c, its addresses, of which there must be one, and its
// listener. It returns the endpoint of the addresses.
func (c *Connection) Init(sc SubConn, addrs []resolver.Address, listener func(balancer.SubConnState)) *resource.Endpoint {
	e := EndpointOfAddresses(addrs)
	c.SubConn, c.listener, c.partial = sc, listener, len(addrs) < len(e.Addresses)
	c.upstream = &Upstream{Connection: c, Endpoint: e, first: addrs[0].Addr}
	return e
}

// Partial reports whether the SubConn had only some of the endpoint's addresses at first,
// as grpc's pick_first makes them.
func (c *Connection) Partial() bool { return c.partial }

// Report reports a state to the listener.
func (c *Connection) Report(s balancer.SubConnState) {
	c.state, c.err = uint8(s.ConnectivityState), s.ConnectionError
	if c.listener != nil {
		c.listener(s)
	}
}

// Reported returns the state of the last Report; IDLE before the first.
func (c *Connection) Reported() balancer.SubConnState {
	return balancer.SubConnState{ConnectivityState: connectivity.State(c.state), ConnectionError: c.err}
}

// Listen replaces the listener, and returns the one before.
func (c *Connection) Listen(listener func(balancer.SubConnState)) (was func(balancer.SubConnState)) {
	was, c.listener = c.listener, listener
	return was
}

// Upstream returns the endpoint for picks.
func (c *Connection) Upstream() *Upstream { return c.upstream }

// Replace returns the Upstream for a value of the endpoint.
func (c *Connection) Replace(e *resource.Endpoint) *Upstream {
	was := c.upstream
	if was.Endpoint == e {
		return was
	}
	u := &Upstream{Connection: c, Endpoint: e, first: was.first}
	if was.Endpoint.Locality == e.Locality {
		u.load.Store(was.load.Load())
	}
	c.upstream, c.former = u, was
	c.show()
	return u
}

// Ready returns the connected address of an endpoint that is not ejected.
func (c *Connection) Ready() (address string, ok bool) { return c.upstream.Address() }

// SetConnected sets the connected address; empty for none.
func (c *Connection) SetConnected(address string) {
	switch address {
	case "":
		c.connected = nil
	case c.upstream.first:
		c.connected = &c.upstream.first
	default:
		c.connected = &address
	}
	c.show()
}

// Connected returns the connected address, also of an ejected endpoint; empty for none.
func (c *Connection) Connected() string {
	if c.connected == nil {
		return ""
	}
	return *c.connected
}

// Eject ejects the endpoint, or ends its ejection.
func (c *Connection) Eject(ejected bool) {
	c.ejected = ejected
	c.show()
}

// SetFinisher sets what counts the ends of the endpoint's picks for a policy above; nil
// for nothing.
func (c *Connection) SetFinisher(f *Finisher) { c.finisher.Store(f) }

// Finisher returns what SetFinisher has set, or nil. Any goroutine may call it.
func (c *Connection) Finisher() Finisher {
	if f := c.finisher.Load(); f != nil {
		return *f
	}
	return nil
}

// show makes picks see whether the endpoint can be used.
func (c *Connection) show() {
	address := c.connected
	if c.ejected {
		address = nil
	}
	c.upstream.address.Store(address)
	if c.former != nil {
		c.former.address.Store(address)
	}
}
