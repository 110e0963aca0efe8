package policy

import (
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/lbd-dev/lbd/xds/resource"
)

type endpointKey struct{}

// ResolverEndpoint returns grpc's endpoint for e, with e as the attribute of it and
// its addresses.
func ResolverEndpoint(e *resource.Endpoint) resolver.Endpoint {
	attrs := attributes.New(endpointKey{}, e)
	addrs := make([]resolver.Address, len(e.Addresses))
	for i, a := range e.Addresses {
		addrs[i] = resolver.Address{Addr: a, BalancerAttributes: attrs}
	}
	return resolver.Endpoint{Addresses: addrs, Attributes: attrs}
}

// EndpointOfAddresses returns the endpoint of [ResolverEndpoint] for the addresses of a SubConn, or
// a new one with the same addresses.
func EndpointOfAddresses(addrs []resolver.Address) *resource.Endpoint {
	if len(addrs) > 0 {
		if own, ok := addrs[0].BalancerAttributes.Value(endpointKey{}).(*resource.Endpoint); ok {
			return own
		}
	}
	all := make([]string, len(addrs))
	for i, a := range addrs {
		all[i] = a.Addr
	}
	return &resource.Endpoint{Addresses: all, Weight: 1}
}

type linkKey struct{}

// Link is the attribute of the addresses of a cluster's SubConns.
type Link struct {
	// Root is [Conn.Root] of the policy that makes the SubConn.
	Root     string
	Cluster  string
	Mode     resource.ConnectMode
	Security *resource.Security // nil for none
	// MaxBackoff limits the pause between attempts to connect; 0 is gRPC's limit. It belongs to the
	// owner, and may change.
	MaxBackoff time.Duration

	attributes *attributes.Attributes // itself; shared by the addresses
}

// NewLink returns the Link of a cluster below root. security may be nil.
func NewLink(root, cluster string, mode resource.ConnectMode, security *resource.Security) *Link {
	l := &Link{Root: root, Cluster: cluster, Mode: mode, Security: security}
	l.attributes = attributes.New(linkKey{}, l)
	return l
}

// WithLink returns addrs with l.
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

// LinkOf returns the Link of a SubConn's addresses, or an empty one.
func LinkOf(addrs []resolver.Address) *Link {
	if len(addrs) > 0 {
		if l, ok := addrs[0].Attributes.Value(linkKey{}).(*Link); ok {
			return l
		}
	}
	return &Link{}
}

// AttemptDelay is how long an attempt to connect may take before the next address is
// tried as well (gRFC A61; RFC 8305's Connection Attempt Delay).
const AttemptDelay = 250 * time.Millisecond

// family is the kind of host in an address.
type family uint8

const (
	familyName family = iota // anything but an IP address
	familyIPv4
	familyIPv6
	families
)

func familyOf(address string) family {
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil:
		return familyName
	case at.Addr().Is4() || at.Addr().Is4In6():
		return familyIPv4
	default:
		return familyIPv6
	}
}

// Interleave takes addresses, host:port each, in turn from the families, in the order
// in which these first appear (gRFC A61; RFC 8305, section 4). If one family is not
// reachable, an address of another is tried soon. The result may be list itself, which
// is not changed.
func Interleave[T any](list []T, address func(T) string) []T {
	if len(list) < 3 {
		return list // in turn already
	}
	var queues [families][]T
	var order []family
	for _, a := range list {
		f := familyOf(address(a))
		if queues[f] == nil {
			order = append(order, f)
		}
		queues[f] = append(queues[f], a)
	}
	if len(order) == 1 {
		return list
	}
	turns := make([]T, 0, len(list))
	for len(turns) < len(list) {
		for _, f := range order {
			if len(queues[f]) > 0 {
				turns = append(turns, queues[f][0])
				queues[f] = queues[f][1:]
			}
		}
	}
	return turns
}

// SameAddresses reports whether the addresses are the same in any order.
func SameAddresses(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	return slices.Equal(a, b) || slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
