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

type connectKey struct{}

// WithConnect returns addrs bearing the connect mode of their cluster.
func WithConnect(addrs []resolver.Address, mode resource.ConnectMode) []resolver.Address {
	if mode == resource.ConnectDefault {
		return addrs
	}
	out := slices.Clone(addrs)
	for i := range out {
		out[i].Attributes = out[i].Attributes.WithValue(connectKey{}, mode)
	}
	return out
}

// ConnectOf returns the connect mode that a SubConn's addresses bear.
func ConnectOf(addrs []resolver.Address) resource.ConnectMode {
	if len(addrs) == 0 {
		return resource.ConnectDefault
	}
	mode, _ := addrs[0].Attributes.Value(connectKey{}).(resource.ConnectMode)
	return mode
}

// SubConn is what lbd's channel gives for a SubConn, beyond grpc's contract.
type SubConn interface {
	balancer.SubConn
	// Ready returns the address that is connected, if one is. It may be
	// called from any goroutine.
	Ready() (address string, ok bool)
}
