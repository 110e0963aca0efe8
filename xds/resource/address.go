package resource

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// CanonicalHost returns one spelling for all of a host: of an IP address that of RFC 5952, and IPv4 for one that is
// mapped to IPv6; of a name lower case. It allocates nothing for a host that is canonical.
func CanonicalHost(host string) string {
	if strings.IndexByte(host, ':') < 0 {
		return strings.ToLower(host)
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	var buffer [64]byte
	if ip = ip.Unmap(); string(ip.AppendTo(buffer[:0])) == host {
		return host
	}
	return ip.String()
}

// CanonicalAddress is CanonicalHost for "host:port". Another text is returned as it is.
func CanonicalAddress(address string) string {
	if strings.Count(address, ":") < 2 && strings.IndexFunc(address, func(r rune) bool { return 'A' <= r && r <= 'Z' || r > '~' }) < 0 {
		return address // nearly all, at little cost
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if canonical := CanonicalHost(host); canonical != host {
		return net.JoinHostPort(canonical, port)
	}
	return address
}

// Has reports whether an address, or its canonical spelling, is one of the endpoint's. Those of resources that are
// written by hand are canonical.
func (e *Endpoint) Has(address string) bool {
	if slices.Contains(e.Addresses, address) {
		return true
	}
	canonical := CanonicalAddress(address)
	return canonical != address && slices.Contains(e.Addresses, canonical)
}
