package bootstrap

import (
	"errors"
	"strings"
	"testing"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "null", "{", "[]", "\ufeff{}", `{"a": 1, "a": 2}`,
		`{` + plainServers + `, ` + plainNode + `}`,
		federated + `, "client_default_listener_resource_name_template": "xdstp://own/t/%s"}`,
		`{` + plainServers + `, "node": {"id": "\ud800", "locality": {"zone": "z"}, "metadata": {"a": [1e999, {}, [true, null]]}}}`,
		`{"xds_servers": [{"server_uri": "dns:///a", "channel_creds": [{"type": "google_default"}, {"type": "tls", "config": {"refresh_interval": "1.5s"}}],
			"call_creds": [{"type": "x"}], "server_features": ["xds_v3", "trusted_xds_server"]}], "certificate_providers": {"a": {"plugin_name": "file_watcher", "config": {}}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "_file\"") {
			return // no files but those that tests write
		}
		c, err := Parse([]byte(body), Options{})
		if err != nil {
			var invalid *InvalidError
			if c != nil || !errors.As(err, &invalid) || len(invalid.Problems) == 0 || len(invalid.Error()) > 200*1024 {
				t.Fatalf("%v", err)
			}
			for _, p := range invalid.Problems {
				if p.Line > 1+strings.Count(body, "\n") || p.Column > len(body)+1 || p.Line > 0 != (p.Column > 0) {
					t.Errorf("%v is not in the text", p)
				}
			}
			return
		}
		if len(c.Servers) == 0 || c.Node == nil || c.ListenerTemplate == "" {
			t.Fatalf("got %+v", c)
		}
		again, err := Parse([]byte(body), Options{})
		noError(t, err)
		for i, s := range c.Servers {
			if s.URI == "" || s.Key() == "" || s.Key() != again.Servers[i].Key() {
				t.Errorf("server %+v", s)
			}
		}
		for name, a := range c.Authorities {
			if name == "" || len(a.Servers) == 0 || !strings.HasPrefix(a.ListenerTemplate, "xdstp://") {
				t.Errorf("authority %q: %+v", name, a)
			}
		}
		if listener := c.ListenerName("//unknown/a b"); c.Authorities["unknown"].ListenerTemplate == "" {
			if _, err := c.ServersFor(listener); err == nil {
				t.Errorf("%q has servers", listener)
			}
		}
		if _, err := c.ServersFor(c.ListenerName("orders")); err != nil {
			t.Errorf("a target without authority: %v", err)
		}
	})
}
