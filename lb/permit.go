package lb

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// DefaultDenied are the networks that a [Permit] should deny by default: link-local
// addresses, among them those of cloud providers' metadata, and addresses that mean this
// host.
var DefaultDenied = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::254/128"),
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("::/128"),
}

// Permit says which addresses endpoints may have. It is asked for each connection, after
// names are resolved.
type Permit struct {
	// Allowed are the networks that are permitted; empty means all. Denied are those that
	// are not, even if they are allowed.
	Allowed, Denied []netip.Prefix
	// Own reports whether an address is one of lbd's own listeners, which are denied; may
	// be nil.
	Own func(netip.AddrPort) bool
}

// DeniedError says that an endpoint's address is not permitted.
type DeniedError struct {
	Address netip.AddrPort
	// Network is the denied network; invalid if the address is not in an allowed one, or is
	// lbd's own.
	Network netip.Prefix
	// Own says that the address is one of lbd's listeners.
	Own bool
}

func (e *DeniedError) Error() string {
	switch {
	case e.Own:
		return fmt.Sprintf("%v is denied: lbd listens there (--deny-endpoints=none permits it)", e.Address)
	case e.Network.IsValid():
		return fmt.Sprintf("%v is denied by --deny-endpoints (%v)", e.Address.Addr(), e.Network)
	default:
		return fmt.Sprintf("%v is not in --allow-endpoints", e.Address.Addr())
	}
}

// Check returns a *DeniedError if an address is not permitted. A nil Permit permits all.
func (p *Permit) Check(a netip.AddrPort) error {
	if p == nil {
		return nil
	}
	ip := a.Addr().Unmap().WithZone("")
	for _, n := range p.Denied {
		if n.Contains(ip) {
			return &DeniedError{Address: a, Network: n}
		}
	}
	if p.Own != nil && p.Own(netip.AddrPortFrom(ip, a.Port())) {
		return &DeniedError{Address: a, Own: true}
	}
	if len(p.Allowed) == 0 || slices.ContainsFunc(p.Allowed, func(n netip.Prefix) bool { return n.Contains(ip) }) {
		return nil
	}
	return &DeniedError{Address: a}
}

// control is for net.Dialer: it is called with the address before each connection.
func (p *Permit) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return p.Check(a)
}
