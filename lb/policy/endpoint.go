package policy

import (
	"slices"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/xds/resource"
)

type endpointKey struct{}

// ResolverEndpoint makes grpc's endpoint of e. It and its addresses bear one
// attribute: e itself.
func ResolverEndpoint(e *resource.Endpoint) resolver.Endpoint {
	attrs := attributes.New(endpointKey{}, e)
	addrs := make([]resolver.Address, len(e.Addresses))
	for i, a := range e.Addresses {
		addrs[i] = resolver.Address{Addr: a, BalancerAttributes: attrs}
	}
	return resolver.Endpoint{Addresses: addrs, Attributes: attrs}
}

// EndpointOf returns the endpoint that [ResolverEndpoint] was made of. For an
// endpoint from elsewhere it makes one of its addresses.
func EndpointOf(e resolver.Endpoint) *resource.Endpoint {
	if own, ok := e.Attributes.Value(endpointKey{}).(*resource.Endpoint); ok {
		return own
	}
	addrs := make([]string, len(e.Addresses))
	for i, a := range e.Addresses {
		addrs[i] = a.Addr
	}
	return &resource.Endpoint{Addresses: addrs, Weight: 1}
}

// EndpointOfAddresses returns the endpoint that a SubConn's addresses belong
// to, or one made of them where they come from elsewhere.
func EndpointOfAddresses(addrs []resolver.Address) *resource.Endpoint {
	e := resolver.Endpoint{Addresses: addrs}
	if len(addrs) > 0 {
		e.Attributes = addrs[0].BalancerAttributes
	}
	return EndpointOf(e)
}

type linkKey struct{}

// Link is what the addresses of a cluster's SubConns bear of it.
type Link struct {
	// Root is [Conn.Root] of the policy that makes the SubConn.
	Root     string
	Cluster  string
	Mode     resource.ConnectMode
	Security *resource.Security // nil for none

	attributes *attributes.Attributes // itself; shared by the addresses
}

// NewLink returns the Link of a cluster below root, with its connect mode and its
// security, which may be nil.
func NewLink(root, cluster string, mode resource.ConnectMode, security *resource.Security) *Link {
	l := &Link{Root: root, Cluster: cluster, Mode: mode, Security: security}
	l.attributes = attributes.New(linkKey{}, l)
	return l
}

// WithLink returns addrs bearing l.
func WithLink(addrs []resolver.Address, l *Link) []resolver.Address {
	out := slices.Clone(addrs)
	for i := range out {
		if out[i].Attributes == nil {
			out[i].Attributes = l.attributes
		} else {
			out[i].Attributes = out[i].Attributes.WithValue(linkKey{}, l)
		}
	}
	return out
}

// LinkOf returns the Link that a SubConn's addresses bear, or one of no cluster
// in the default connect mode.
func LinkOf(addrs []resolver.Address) *Link {
	if len(addrs) > 0 {
		if l, ok := addrs[0].Attributes.Value(linkKey{}).(*Link); ok {
			return l
		}
	}
	return &Link{}
}

// SubConn is what lbd's channel gives for a SubConn, beyond grpc's contract.
type SubConn interface {
	balancer.SubConn
	// Ready returns the address that is connected, if one is. It may be
	// called from any goroutine.
	Ready() (address string, ok bool)
}
