package bootstrap

import (
	"fmt"
	"net/url"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

const (
	// xdstp is the scheme of names with an authority.
	xdstp = "xdstp:"
	// everyTarget is the placeholder of the target's name in a template.
	everyTarget = "%s"
)

// Config is a bootstrap. It is immutable, except for the certificates that its servers and
// providers read.
type Config struct {
	// Source is its origin, such as "bootstrap file /etc/lbd/xds.json".
	Source string
	// Servers are the management servers in order of fallback (gRFC A71), at least one.
	Servers []Server
	// Node has id, cluster, locality and metadata of the file, the user agent "lbd" with
	// its version, and gRPC's client features.
	Node *corev3.Node
	// Authorities are those of xdstp names, by non-empty name (gRFC A47).
	Authorities map[string]Authority
	// ListenerTemplate is client_default_listener_resource_name_template, for targets
	// without an authority (default "%s").
	ListenerTemplate string
	// CertificateProviders are the providers for the TLS of Clusters, by instance.
	CertificateProviders map[string]*CertificateProvider
	// Warnings are findings that do not make the bootstrap invalid.
	Warnings []Problem
}

// Authority is an authority of xdstp names.
type Authority struct {
	// ListenerTemplate is the template of Listener names of its targets.
	ListenerTemplate string
	// Servers are its management servers in order of fallback (default: those of the
	// bootstrap).
	Servers []Server
}

// ListenerName returns the name of the Listener of a target: "///orders", "orders" or
// "//authority/orders", with or without "xds:". The target is percent-decoded, and encoded
// again in a name with xdstp: (gRFC A47).
//
// For an unknown authority, the name is one that [Config.ServersFor] rejects.
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

func splitTarget(target string) (authority, name string) {
	name = strings.TrimPrefix(target, "xds:")
	if rest, ok := strings.CutPrefix(name, "//"); ok {
		authority, name, _ = strings.Cut(rest, "/")
	}
	return unescape(authority), unescape(strings.TrimPrefix(name, "/"))
}

// unescape decodes percent-encoding. An invalid encoding stays.
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

// Authority returns the authority of a resource name: "authority" of
// xdstp://authority/type/id, "" for any other name.
func (c *Config) Authority(resourceName string) string {
	authority, _ := authorityOf(resourceName)
	return authority
}

// authorityOf returns the authority of a name, which may be empty, and whether it has one.
// As in gRPC, an xdstp: name without type and id has none.
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

// ServersFor returns the management servers for a resource, in order of fallback: those of
// the authority of an xdstp name, or of the bootstrap. An unknown authority is an error.
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
