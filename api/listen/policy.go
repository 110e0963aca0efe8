// Package listen describes the listeners of the API: what --listen asks for
// ([Spec]), what callers may do on them ([Policy]), and who calls ([Callers]).
package listen

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/lbd-dev/lbd/service/access"
)

// unsafeRoles are the roles that callers have at most beyond loopback, without
// TLS or without identity.
const unsafeRoles = access.Pick | access.Metrics

// A Policy is what callers may do on one listener.
type Policy struct {
	// Roles are those that any caller can have.
	Roles access.Roles
	// Anonymous are the roles of a caller without identity.
	Anonymous access.Roles
	// ChecksHost says that requests to an unknown host are rejected, against DNS
	// rebinding: on TCP, where callers need no identity.
	ChecksHost bool
	// Limited are the roles that a caller would have if the listener were local, or
	// had TLS and its callers an identity.
	Limited access.Roles
	// Identities says that callers can have an identity.
	Identities bool
	// Local says that only processes of this machine reach the listener.
	Local bool
}

// Policy returns the policy of a listener. identities says that callers can have
// an identity; insecure lifts the limits beyond loopback.
func (s *Spec) Policy(identities, insecure bool) Policy {
	p := Policy{Roles: s.Roles, Identities: identities, Local: s.IsLocal()}
	limited := !p.Local && !insecure
	if limited && !s.TLS {
		p.Roles &= unsafeRoles
	}
	switch {
	case s.Anonymous != nil:
		p.Anonymous = *s.Anonymous
	case !identities:
		p.Anonymous = s.Roles
	}
	p.Limited = (p.Anonymous | s.Roles) &^ p.Roles
	if limited {
		p.Limited |= p.Anonymous &^ unsafeRoles
		p.Anonymous &= unsafeRoles
	}
	p.Limited &= s.Roles
	p.Anonymous &= p.Roles
	p.ChecksHost = !s.IsUnix() && p.Anonymous != 0
	return p
}

// Warning returns what the operator should know about a listener, or "".
func (s *Spec) Warning(p Policy, insecure bool) string {
	switch {
	case !p.Local && insecure && p.Anonymous&^unsafeRoles != 0:
		return fmt.Sprintf("--insecure: every caller that reaches %s has the roles %v", s.Address, p.Anonymous)
	case p.Limited != 0:
		return fmt.Sprintf("%s: roles are limited to %v, because other machines can connect and TLS or identities are missing. %s",
			s.Address, p.Roles&(p.Anonymous|unsafeRoles), remedies)
	default:
		return ""
	}
}

// remedies are what an operator can do about limited roles.
const remedies = "Add the option tls and --tokens, or, in a trusted network, --insecure"

// Hosts are the values of the Host header that a request may have on a listener
// without identity: IP addresses, localhost, and names that are allowed. A page
// that uses DNS rebinding has another name in it. A nil *Hosts has no names.
type Hosts struct{ names map[string]bool }

// NewHosts returns the hosts of --allow-host: names, or "*." and a suffix.
func NewHosts(names []string) (*Hosts, error) {
	h := &Hosts{names: make(map[string]bool)}
	for _, name := range names {
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		if base := strings.TrimPrefix(name, "*."); base == "" || strings.ContainsAny(base, "*:/ ") {
			return nil, fmt.Errorf("%q: must be a host name, or *. and a host name, without port", name)
		}
		h.names[name] = true
	}
	return h, nil
}

// Allow reports whether a Host header is allowed. An empty one is: no browser
// sends it.
func (h *Hosts) Allow(host string) bool {
	if host == "" {
		return true
	}
	if strings.IndexByte(host, ':') >= 0 { // an error of SplitHostPort allocates
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	if h == nil {
		return false
	}
	if h.names[host] {
		return true
	}
	for {
		_, parent, found := strings.Cut(host, ".")
		if !found {
			return false
		}
		if h.names["*."+parent] {
			return true
		}
		host = parent
	}
}
