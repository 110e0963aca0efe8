package decode

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// all returns an endpoint's addresses as "host:port", its own first. No address
// may be in an assignment twice.
func (v *assignmentValidator) all(at place, m *endpointv3.LbEndpoint) []string {
	endpoint := m.GetEndpoint()
	if v.byHand && endpoint == nil {
		if _, named := m.GetHostIdentifier().(*endpointv3.LbEndpoint_EndpointName); named {
			v.refuse(at.String()+".endpoint_name", "is not supported: write the endpoint itself, %s", "endpoint: {address: "+wanted+"}")
		} else {
			v.refuse(at.String()+".endpoint", "is absent: write %s", "endpoint: {address: "+wanted+"}")
		}
		return nil
	}
	more := endpoint.GetAdditionalAddresses()
	if v.byHand && len(more) > MaxAdditionalAddresses {
		v.refuse(at.String()+".endpoint.additional_addresses", "holds %d addresses, of at most %d", len(more), MaxAdditionalAddresses)
		return nil
	}
	addresses := make([]string, 1, 1+len(more))
	addresses[0] = v.address(at, -1, endpoint.GetAddress())
	for i, a := range more {
		addresses = append(addresses, v.address(at, i, a.GetAddress()))
	}
	return addresses
}

// wanted is how an address is to be written.
const wanted = "{socket_address: {address: 10.0.0.1, port_value: 8080}}"

// addressField is the path of an endpoint's own address (i < 0) or of one of
// its additional ones.
func addressField(at place, i int) string {
	if i < 0 {
		return at.String() + ".endpoint.address"
	}
	return fmt.Sprintf("%s.endpoint.additional_addresses[%d].address", at, i)
}

// address judges one address.
func (v *assignmentValidator) address(at place, i int, a *corev3.Address) string {
	if v.byHand && !v.connectable(at, i, a) {
		return ""
	}
	socket := a.GetSocketAddress()
	address := net.JoinHostPort(socket.GetAddress(), strconv.FormatUint(uint64(socket.GetPortValue()), 10))
	if first, twice := v.addresses[address]; twice {
		v.refuse(addressField(at, i), "is %s, which %s has already", address, whose(first, at))
		return address
	}
	v.addresses[address] = at
	return address
}

func whose(first, at place) string {
	if first == at {
		return "the same endpoint"
	}
	return first.String()
}

// connectable refuses an address that can never connect.
func (v *assignmentValidator) connectable(at place, i int, a *corev3.Address) bool {
	before := len(v.problems.list) + v.problems.more
	switch a := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		v.socket(at, i, a.SocketAddress)
	case *corev3.Address_Pipe:
		v.refuse(addressField(at, i)+".pipe", "is not supported: write %s", wanted)
	case *corev3.Address_EnvoyInternalAddress:
		v.refuse(addressField(at, i)+".envoy_internal_address", "is not supported: write %s", wanted)
	default:
		v.refuse(addressField(at, i)+".socket_address", "is absent: write address: %s", wanted)
	}
	return len(v.problems.list)+v.problems.more == before
}

func (v *assignmentValidator) socket(at place, i int, s *corev3.SocketAddress) {
	if reason := badHost(s.GetAddress()); reason != "" {
		v.refuse(addressField(at, i)+".socket_address.address", "%s", reason)
	}
	switch port := s.GetPortSpecifier().(type) {
	case *corev3.SocketAddress_NamedPort:
		v.refuse(addressField(at, i)+".socket_address.named_port", "is not supported: write the number in port_value")
	case *corev3.SocketAddress_PortValue:
		if port.PortValue == 0 || port.PortValue > 65535 {
			v.refuse(addressField(at, i)+".socket_address.port_value", "is %d: it must be from 1 to 65535", port.PortValue)
		}
	default:
		v.refuse(addressField(at, i)+".socket_address.port_value", "is absent: it must be from 1 to 65535")
	}
}

// badHost says why a host can never be connected to, or nothing. It is an IP
// address, or a name that the resolver will look up at all.
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
