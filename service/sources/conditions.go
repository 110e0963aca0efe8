package sources

import (
	"fmt"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"
	"google.golang.org/grpc/status"

	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resource"
)

// conditions reports management servers that cannot be reached, and their rejected
// resources.
func (s *servers) conditions() []observe.Condition {
	if s.client == nil {
		return nil
	}
	now := s.recent.get(s.client.Status, probePatience)
	return append(unreachableServers(now.Servers), rejectedResources(now.Resources)...)
}

// unreachableServers reports the servers that each authority tried without
// success, up to the first that is connected. servers are sorted by authority and
// fallback.
func unreachableServers(servers []client.ServerStatus) []observe.Condition {
	var out []observe.Condition
	reported, served := make(map[string]bool), make(map[string]bool)
	for i, server := range servers {
		if server.Connected {
			served[server.Authority] = true
		}
		if served[server.Authority] || server.LastError == nil || reported[server.URI] {
			continue
		}
		reported[server.URI] = true
		since := server.Since
		if since.IsZero() {
			since = server.LastErrorAt
		}
		meanwhile := "the last good resources stay in use"
		for _, next := range servers[i+1:] {
			if next.Authority == server.Authority && next.Connected && next.Targets > 0 {
				meanwhile = fmt.Sprintf("fallback server %s is in use (targets: %d)", next.URI, next.Targets)
				break
			}
		}
		out = append(out, observe.Condition{
			Kind: observe.ConditionServerUnreachable, Subject: server.URI, Since: since,
			Text:   fmt.Sprintf("management server %s cannot be reached (%s); %s", server.URI, reason(server.LastError), meanwhile),
			Remedy: remedy(server.URI, server.LastError) + "; lbd reconnects by itself",
		})
	}
	return out
}

// remedy says what to do about a server that cannot be reached.
func remedy(uri string, err error) string {
	for _, of := range []struct{ text, remedy string }{
		{"does not look like a TLS handshake", "the server speaks no TLS: set channel_creds of the bootstrap to insecure, or enable TLS at the server"},
		{"x509: ", "correct ca_certificate_file of the channel_creds in the bootstrap, or the certificate of the server"},
		{"", proxied(uri)},
		{"no such host", "correct server_uri in the bootstrap, or the DNS records"},
		{"connection refused", "start the server, or correct server_uri in the bootstrap"},
	} {
		if of.remedy != "" && strings.Contains(err.Error(), of.text) {
			return of.remedy
		}
	}
	return "check the server and the network"
}

// proxied says what to do about a proxy between lbd and a server; empty without one. grpc-go connects to a TCP address
// through a proxy as Go's net/http does to a URL of https.
func proxied(uri string) string {
	server := &url.URL{Scheme: "https", Host: strings.TrimPrefix(uri, "dns:///")}
	proxy, _ := httpproxy.FromEnvironment().ProxyFunc()(server)
	if proxy == nil || strings.HasPrefix(uri, "unix:") {
		return ""
	}
	return fmt.Sprintf("correct HTTPS_PROXY, which leads to this server through the proxy %s, or name the server in NO_PROXY", proxy.Host)
}

// reason returns an error's text, without the prefix of a gRPC status.
func reason(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

func rejectedResources(resources []client.ResourceStatus) []observe.Condition {
	var out []observe.Condition
	var last resource.Key
	for _, r := range resources { // sorted: those of several targets follow each other
		if r.Key == last || r.Rejection == nil || r.State != client.Nacked && r.State != client.NackedButCached {
			continue
		}
		meanwhile := "there is no earlier version"
		if r.State == client.NackedButCached {
			meanwhile = "the last good version stays in use"
		}
		last = r.Key
		out = append(out, observe.Condition{
			Kind: observe.ConditionResourceRejected, Subject: r.Key.String(), Since: r.Rejection.At,
			Text:   fmt.Sprintf("%s of the management server is rejected (%v); %s", r.Key, r.Rejection.Err, meanwhile),
			Remedy: "correct the resource on the management server",
		})
	}
	return out
}

func (f *resourceFiles) conditions() []observe.Condition {
	set := f.set()
	var out []observe.Condition
	for _, b := range set.Bad {
		out = append(out, observe.Condition{
			Kind: observe.ConditionFileBad, Subject: b.File, Since: b.Since,
			Text:   fmt.Sprintf("resource file %s is bad (%v); %s", b.File, b.Err, inUse(b)),
			Remedy: "correct the file; lbd check lists every error",
		})
	}
	for _, h := range set.Held {
		out = append(out, observe.Condition{
			Kind: observe.ConditionChangeHeld, Subject: h.Hash, Since: h.Since,
			Text:   fmt.Sprintf("a change of %s is held: %s; the last good version stays in use", fileNames(h), strings.Join(h.Reasons, "; ")),
			Remedy: fmt.Sprintf("correct the files, or permit exactly this change with POST %s", PermitPath(h.Hash)),
		})
	}
	return out
}
