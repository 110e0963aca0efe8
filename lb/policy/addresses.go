package policy

import (
	"net/netip"
	"slices"
	"time"
)

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
