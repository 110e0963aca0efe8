package listen

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

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
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
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
