package policy

import (
	"sync/atomic"

	"google.golang.org/grpc/balancer"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Upstream is an endpoint as picks see it, in one place: its values, whether it can be
// used now, and where its picks are counted. It is the SubConn of a pick's result.
//
// It is fixed, apart from what is atomic. An endpoint whose values change gets another
// Upstream.
type Upstream struct {
	balancer.SubConn // of the tree

	Endpoint *resource.Endpoint

	address atomic.Pointer[string] // the connected one; nil unless the endpoint can be used
	first   string                 // what address points to, unless the endpoint has several
	load    atomic.Pointer[LocalityLoad]
	// Place is where the caller of the channel has last counted a pick of the endpoint; it
	// belongs to the caller.
	Place atomic.Pointer[Place]
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
	if l := u.load.Load(); l != nil && l.owner == c {
		return l
	}
	l := c.Locality(u.Endpoint.Locality) // for the first pick
	u.load.Store(l)
	return l
}

// Finisher returns what [Connection.SetFinisher] has set, or nil.
func (u *Upstream) Finisher() Finisher {
	if f := ConnectionOf(u.SubConn).finisher.Load(); f != nil {
		return *f
	}
	return nil
}

// SubConn is a SubConn of lbd's trees. It embeds a [Connection].
type SubConn interface {
	balancer.SubConn
	// Ready returns the connected address of an endpoint that is not ejected.
	Ready() (address string, ok bool)

	// Base returns the Connection that the SubConn embeds.
	Base() *Connection
}

// Connection is the part of a SubConn that picks see. It belongs to the owner.
type Connection struct {
	original Upstream
	// Picks that began before the endpoint's values changed use the former.
	upstream, former *Upstream

	connected string // the address; empty for none
	ejected   bool

	finisher atomic.Pointer[Finisher]
}

// ConnectionOf returns the Connection of a SubConn. It panics for one that is not of a
// tree of lbd's.
func ConnectionOf(sc balancer.SubConn) *Connection {
	return sc.(SubConn).Base() //nolint:errcheck,forcetypeassert // see above
}

// Base returns c.
func (c *Connection) Base() *Connection { return c }

// Init sets the SubConn that embeds c, its endpoint, and its first address.
func (c *Connection) Init(sc balancer.SubConn, e *resource.Endpoint, address string) {
	c.upstream = &c.original
	c.upstream.SubConn, c.upstream.Endpoint, c.upstream.first = sc, e, address
}

// Upstream returns the endpoint for picks.
func (c *Connection) Upstream() *Upstream { return c.upstream }

// Replace returns the Upstream for a value of the endpoint.
func (c *Connection) Replace(e *resource.Endpoint) *Upstream {
	was := c.upstream
	if was.Endpoint == e {
		return was
	}
	u := &Upstream{SubConn: was.SubConn, Endpoint: e, first: was.first}
	if was.Endpoint.Locality == e.Locality {
		u.load.Store(was.load.Load())
	}
	c.upstream, c.former = u, was
	c.show(u)
	return u
}

// Ready returns the connected address of an endpoint that is not ejected.
func (c *Connection) Ready() (address string, ok bool) { return c.upstream.Address() }

// SetConnected sets the connected address; empty for none.
func (c *Connection) SetConnected(address string) {
	c.connected = address
	c.showAll()
}

// Connected returns the connected address, also of an ejected endpoint; empty for none.
func (c *Connection) Connected() string { return c.connected }

// Eject ejects the endpoint, or ends its ejection.
func (c *Connection) Eject(ejected bool) {
	if c.ejected != ejected {
		c.ejected = ejected
		c.showAll()
	}
}

// SetFinisher sets what counts the ends of the endpoint's picks for a policy above; nil
// for nothing.
func (c *Connection) SetFinisher(f *Finisher) { c.finisher.Store(f) }

func (c *Connection) showAll() {
	c.show(c.upstream)
	if c.former != nil {
		c.show(c.former)
	}
}

// show makes picks see whether u can be used.
func (c *Connection) show(u *Upstream) {
	switch {
	case c.connected == "" || c.ejected:
		u.address.Store(nil)
	case c.connected == u.first:
		u.address.Store(&u.first)
	default:
		address := c.connected
		u.address.Store(&address)
	}
}
