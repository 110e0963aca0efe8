package bootstrap

import (
	"strings"
	"testing"
)

const federated = `{
	"node": {"id": "one"},
	"xds_servers": [{"server_uri": "top:1", "channel_creds": [{"type": "insecure"}]}],
	"authorities": {
		"plain": {},
		"own": {
			"client_listener_resource_name_template": "xdstp://own/envoy.config.listener.v3.Listener/%s/v/%s?a=b",
			"xds_servers": [{"server_uri": "own:1", "channel_creds": [{"type": "insecure"}]}, {"server_uri": "own:2", "channel_creds": [{"type": "insecure"}]}]
		},
		"fixed": {"client_listener_resource_name_template": "xdstp://fixed/envoy.config.listener.v3.Listener/all"}
	}
`

// The rules of gRFC A47 for templates.
func TestListenerName(t *testing.T) {
	for _, row := range []struct{ template, target, want string }{
		{"", "orders", "orders"},
		{"", "///orders", "orders"},
		{"", "xds:///orders", "orders"},
		{"", "xds:orders", "orders"},
		{"", "orders.example:8080", "orders.example:8080"},
		{"", "a/b", "a/b"},
		{"", "///a//b", "a//b"},
		{"", "a%20b", "a b"},
		{"", "100%", "100%"},
		{"", "", ""},
		{"grpc/%s", "xds:///a b", "grpc/a b"},
		{"grpc/%s/%s", "a", "grpc/a/a"},
		{"all", "a", "all"},
		{"xdstp://plain/envoy.config.listener.v3.Listener/%s", "a", "xdstp://plain/envoy.config.listener.v3.Listener/a"},
		{"xdstp://plain/envoy.config.listener.v3.Listener/%s", "a b/c", "xdstp://plain/envoy.config.listener.v3.Listener/a%20b/c"},
		{"xdstp://plain/envoy.config.listener.v3.Listener/%s", "a%20b%2Fc", "xdstp://plain/envoy.config.listener.v3.Listener/a%20b/c"},
		{"xdstp://plain/envoy.config.listener.v3.Listener/%s", "[::1]:80?x#y", "xdstp://plain/envoy.config.listener.v3.Listener/%5B::1%5D:80%3Fx%23y"},
		{"", "//plain/orders", "xdstp://plain/envoy.config.listener.v3.Listener/orders"},
		{"", "xds://plain/orders", "xdstp://plain/envoy.config.listener.v3.Listener/orders"},
		{"", "//own/a b", "xdstp://own/envoy.config.listener.v3.Listener/a%20b/v/a%20b?a=b"},
		{"", "//fixed/a", "xdstp://fixed/envoy.config.listener.v3.Listener/all"},
		{"", "//unknown/a", "xdstp://unknown/envoy.config.listener.v3.Listener/a"},
	} {
		body := federated + "}"
		if row.template != "" {
			body = federated + `, "client_default_listener_resource_name_template": ` + quote(row.template) + "}"
		}
		if got := parse(t, body).ListenerName(row.target); got != row.want {
			t.Errorf("%q of %q: got %q, want %q", row.target, row.template, got, row.want)
		}
	}
}

func TestServersFor(t *testing.T) {
	c := parse(t, federated+"}")
	for name, want := range map[string]string{
		"orders":          "top:1",
		"":                "top:1",
		"https://own/a/b": "top:1",
		"xdstp:orders":    "top:1",
		"xdstp://own":     "top:1", // without type and id: a plain name, as in gRPC
		"xdstp://own/envoy.config.cluster.v3.Cluster":              "top:1",
		"xdstp://own/envoy.config.cluster.v3.Cluster/a":            "own:1 own:2",
		"xdstp://own/envoy.config.cluster.v3.Cluster/a/b?c=d#e":    "own:1 own:2",
		"xdstp://plain/envoy.config.listener.v3.Listener/a%20b":    "top:1",
		"xdstp:///envoy.config.listener.v3.Listener/a":             `resource "xdstp:///envoy.config.listener.v3.Listener/a": bootstrap has no authority "" in its authorities`,
		"xdstp://unknown/envoy.config.listener.v3.Listener/orders": `resource "xdstp://unknown/envoy.config.listener.v3.Listener/orders": bootstrap has no authority "unknown" in its authorities`,
	} {
		servers, err := c.ServersFor(name)
		var got []string
		for _, s := range servers {
			got = append(got, s.String())
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"orders": "", "xdstp://own/t/a": "own", "xdstp://own": "", "xdstp:///t/a": ""} {
		if got := c.Authority(name); got != want {
			t.Errorf("%q has the authority %q, want %q", name, got, want)
		}
	}
}

// Servers with an equal key share a connection.
func TestKeys(t *testing.T) {
	const insecure = `"channel_creds": [{"type": "insecure"}]`
	withTLS := func(config string) string { return `"channel_creds": [{"type": "tls", "config": ` + config + `}]` }
	distinct := []Server{
		server(t, "a:1", insecure),
		server(t, "a:2", insecure),
		server(t, "a:1", insecure+`, "server_features": ["fail_on_data_errors"]`),
		server(t, "a:1", insecure+`, "server_features": ["resource_timer_is_transient_error"]`),
		server(t, "a:1", insecure+`, "server_features": ["trusted_xds_server"]`),
		server(t, "a:1", withTLS(`{}`)),
		server(t, "a:1", withTLS(`{"ca_certificate_file": "/nowhere/ca"}`)),
		server(t, "a:1", withTLS(`{"ca_certificate_file": "/nowhere/other"}`)),
		server(t, "a:1", withTLS(`{"ca_certificate_file": "/nowhere/ca", "refresh_interval": "1s"}`)),
		server(t, "a:1", withTLS(`{"ca_certificate_file": "/nowhere/ca", "certificate_file": "/nowhere/c", "private_key_file": "/nowhere/k"}`)),
		server(t, "a:1", withTLS(`{}`)+`, "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/a"}}]`),
		server(t, "a:1", withTLS(`{}`)+`, "call_creds": [{"type": "jwt_token_file", "config": {"jwt_token_file": "/b"}}]`),
	}
	seen := map[string]int{}
	for i, s := range distinct {
		if earlier, there := seen[s.Key()]; there {
			t.Errorf("servers %d and %d share the key %q", earlier, i, s.Key())
		}
		seen[s.Key()] = i
	}
	equal := server(t, "a:1", `"channel_creds": [{"config": {}, "type": "other"}, {"config": {"x": 1}, "type": "insecure"}], "server_features": ["xds_v3", "ignore_resource_deletion", "xyz"]`)
	if equal.Key() != distinct[0].Key() {
		t.Errorf("%q is not %q", equal.Key(), distinct[0].Key())
	}
	if p, q := server(t, "a:1", withTLS(`null`)), distinct[5]; p.Key() != q.Key() {
		t.Errorf("%q is not %q", p.Key(), q.Key())
	}
}
