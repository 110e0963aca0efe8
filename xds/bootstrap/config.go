package bootstrap

import (
	"fmt"
	"net/url"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

const (
	// xdstp begins the names that say which authority they belong to.
	xdstp = "xdstp:"
	// everyTarget stands for the target's name in a template.
	everyTarget = "%s"
)

// Config is a bootstrap. It is immutable, but for the certificates that its
// servers and providers read.
type Config struct {
	// Source is where it was read, in words: "bootstrap file /etc/lbd/xds.json".
	Source string
	// Servers are the management servers, in order of fallback (gRFC A71): at
	// least one.
	Servers []Server
	// Node says who asks: id, cluster, locality and metadata as they are written,
	// user agent "lbd" with its version, and the client features that gRPC sends.
	Node *corev3.Node
	// Authorities are those of xdstp names, by name (gRFC A47). None is "".
	Authorities map[string]Authority
	// ListenerTemplate makes a Listener's name of a target without authority:
	// client_default_listener_resource_name_template, "%s" where it is absent.
	ListenerTemplate string
	// CertificateProviders are those that a Cluster's security may name, by
	// instance.
	CertificateProviders map[string]*CertificateProvider
	// Warnings are what was accepted and is worth a word.
	Warnings []Problem
}

// Authority is one that xdstp names may name.
type Authority struct {
	// ListenerTemplate makes a Listener's name of a target with this authority.
	ListenerTemplate string
	// Servers are its management servers, in order of fallback; the bootstrap's
	// where it names none of its own.
	Servers []Server
}

// ListenerName returns the name of the Listener of a target. The target is what a
// URI has after "xds:" (which may be there too): "///orders" or "orders", or
// "//authority/orders"; percent-encoding is undone, and done again where the name
// begins with xdstp: (gRFC A47).
//
// An authority that the bootstrap does not have gives a name that [Config.ServersFor]
// refuses.
func (c *Config) ListenerName(target string) string {
	authority, name := splitTarget(target)
	template := c.ListenerTemplate
	if authority != "" {
		known, ok := c.Authorities[authority]
		if template = known.ListenerTemplate; !ok {
			template = defaultTemplate(authority)
		}
	}
	if strings.HasPrefix(template, xdstp) {
		segments := strings.Split(name, "/")
		for i, s := range segments {
			segments[i] = url.PathEscape(s)
		}
		name = strings.Join(segments, "/")
	}
	return strings.ReplaceAll(template, everyTarget, name)
}

// splitTarget takes a target's URI apart.
func splitTarget(target string) (authority, name string) {
	name = strings.TrimPrefix(target, "xds:")
	if rest, ok := strings.CutPrefix(name, "//"); ok {
		authority, name, _ = strings.Cut(rest, "/")
	}
	return unescape(authority), unescape(strings.TrimPrefix(name, "/"))
}

// unescape undoes percent-encoding; what is not well encoded stays.
func unescape(s string) string {
	if plain, err := url.PathUnescape(s); err == nil {
		return plain
	}
	return s
}

func authorityPrefix(authority string) string {
	return xdstp + "//" + url.PathEscape(authority) + "/"
}

func defaultTemplate(authority string) string {
	return authorityPrefix(authority) + "envoy.config.listener.v3.Listener/" + everyTarget
}

// Authority returns the authority that a resource's name bears: that of
// xdstp://authority/type/id, "" for any other name.
func (c *Config) Authority(resourceName string) string {
	authority, _ := authorityOf(resourceName)
	return authority
}

// authorityOf tells apart names with an authority, which may be empty, and names
// without. As in gRPC, what begins with xdstp: and has no type and id is a name
// without.
func authorityOf(name string) (authority string, federated bool) {
	if !strings.HasPrefix(name, xdstp+"//") {
		return "", false
	}
	u, err := url.Parse(name)
	if err != nil || strings.Count(u.Path, "/") < 2 {
		return "", false
	}
	return u.Host, true
}

// ServersFor returns the management servers that have a resource, in order of
// fallback: those of the authority of an xdstp name, the bootstrap's for any other
// name. A name of an authority that the bootstrap does not have is an error.
func (c *Config) ServersFor(resourceName string) ([]Server, error) {
	name, federated := authorityOf(resourceName)
	if !federated {
		return c.Servers, nil
	}
	authority, ok := c.Authorities[name]
	if !ok {
		return nil, fmt.Errorf("resource %q: %s has no authority %q in its authorities", resourceName, c.Source, name)
	}
	return authority.Servers, nil
}
