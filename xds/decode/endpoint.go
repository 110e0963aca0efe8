package decode

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

const wanted = "{socket_address: {address: 10.0.0.1, port_value: 8080}}"

// endpointAddresses returns an endpoint's addresses as "host:port", its own first. Each
// address may be in an assignment once.
func (v *assignmentValidator) endpointAddresses(at place, m *endpointv3.LbEndpoint) []string {
	endpoint := m.GetEndpoint()
	if v.byHand && endpoint == nil {
		if _, named := m.GetHostIdentifier().(*endpointv3.LbEndpoint_EndpointName); named {
			v.reject(at.String()+".endpoint_name", "is not supported: write the endpoint itself, endpoint: {address: %s}", wanted)
		} else {
			v.reject(at.String()+".endpoint", "is absent: write endpoint: {address: %s}", wanted)
		}
		return nil
	}
	more := endpoint.GetAdditionalAddresses()
	if len(more) > 0 && v.tooMany(at.String()+".endpoint.additional_addresses", len(more), MaxAdditionalAddresses, "addresses") {
		return nil
	}
	addresses := make([]string, 1, 1+len(more))
	addresses[0] = v.address(at, -1, endpoint.GetAddress())
	for i, a := range more {
		addresses = append(addresses, v.address(at, i, a.GetAddress()))
	}
	return addresses
}

// addressField returns the path of an endpoint's own address (i < 0) or of an additional one.
func addressField(at place, i int) string {
	if i < 0 {
		return at.String() + ".endpoint.address"
	}
	return fmt.Sprintf("%s.endpoint.additional_addresses[%d].address", at, i)
}

func (v *assignmentValidator) address(at place, i int, a *corev3.Address) string {
	if v.byHand && !v.connectable(at, i, a) {
		return ""
	}
	if v.byHand && !v.Stored { // an older lbd may have accepted two spellings of an address
		v.respell(at, i, a.GetSocketAddress())
	}
	address := hostPort(a.GetSocketAddress())
	first, twice := v.addresses[address]
	switch {
	case !twice:
		v.addresses[address] = at
	case first == at:
		v.reject(addressField(at, i), "is %s, which the same endpoint has already", address)
	default:
		v.reject(addressField(at, i), "is %s, which %s has already", address, first)
	}
	return address
}

// respell gives an address its canonical spelling.
func (v *assignmentValidator) respell(at place, i int, s *corev3.SocketAddress) {
	if host := resource.CanonicalHost(s.GetAddress()); host != s.GetAddress() {
		v.note(addressField(at, i)+".socket_address.address", "is %s: taken as %s", s.GetAddress(), host)
		s.Address = host
	}
}

func hostPort(s *corev3.SocketAddress) string {
	return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
}

func (v *assignmentValidator) connectable(at place, i int, a *corev3.Address) bool {
	socket := a.GetSocketAddress()
	if socket == nil {
		if name := oneof(a, "address"); name != "" {
			v.reject(addressField(at, i)+"."+name, "is not supported: write %s", wanted)
		} else {
			v.reject(addressField(at, i)+".socket_address", "is absent: write address: %s", wanted)
		}
		return false
	}
	reason := badHost(socket.GetAddress())
	portField, badPort := badPort(socket)
	if reason == "" && badPort == "" {
		return true
	}
	field := addressField(at, i) + ".socket_address."
	v.rejectIf(field+"address", reason)
	v.rejectIf(field+portField, badPort)
	return false
}

// badPort returns why a port cannot be connected to, and the field that is wrong.
func badPort(s *corev3.SocketAddress) (field, reason string) {
	switch port := s.GetPortSpecifier().(type) {
	case *corev3.SocketAddress_NamedPort:
		return "named_port", "is not supported: write the number in port_value"
	case *corev3.SocketAddress_PortValue:
		if port.PortValue == 0 || port.PortValue > 65535 {
			return "port_value", fmt.Sprintf("is %d: it must be from 1 to 65535", port.PortValue)
		}
		return "port_value", ""
	default:
		return "port_value", "is absent: it must be from 1 to 65535"
	}
}

// badHost returns why a host is neither an IP address nor a name that the resolver looks
// up, or nothing.
func badHost(host string) string {
	if host == "" {
		return "is empty: it must be an IP address or a host name"
	}
	if _, err := netip.ParseAddr(host); err == nil || isHostName(host) {
		return ""
	}
	if _, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(port, 10, 16); err == nil {
			return fmt.Sprintf("is %q: the port belongs in port_value", host)
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok && strings.HasSuffix(inner, "]") {
		return fmt.Sprintf("is %q: an IPv6 address has no brackets here", host)
	}
	return fmt.Sprintf("is %q, which is neither an IP address nor a host name", host)
}

// isHostName reports whether s may be a host name: labels of letters, digits,
// hyphens and underscores, and not a mistyped IPv4 address.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if len(s) > 253 {
		return false
	}
	letters := false
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			switch {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '-':
				letters = true
			case c < '0' || c > '9':
				return false
			}
		}
	}
	return letters
}
