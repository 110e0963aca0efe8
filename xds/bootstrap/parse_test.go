package bootstrap

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// The parts of a bootstrap that a test does not change.
const (
	plainServers = `"xds_servers": [{"server_uri": "control:18000", "channel_creds": [{"type": "insecure"}]}]`
	plainNode    = `"node": {"id": "one"}`
)

// TestParse has a row for each part of a bootstrap, with what grpc-go v1.85 makes
// of it, and what lbd has to say of it.
func TestParse(t *testing.T) {
	for name, row := range map[string]struct {
		body     string
		check    func(*Config) bool
		warnings []string
	}{
		"the least that there can be": {
			body: `{` + plainServers + `}`,
			check: func(c *Config) bool {
				s := c.Servers
				return len(s) == 1 && s[0].URI == "control:18000" && s[0].Credentials == "insecure" && c.ListenerTemplate == "%s" && c.Authorities == nil && c.CertificateProviders == nil
			},
			warnings: []string{"node.id: is empty: many management servers identify their clients by it"},
		},
		"servers in order of fallback": {
			body: `{` + plainNode + `, "xds_servers": [
				{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]},
				{"server_uri": "b:1", "channel_creds": [{"type": "tls"}]}]}`,
			check: func(c *Config) bool {
				return len(c.Servers) == 2 && c.Servers[0].URI == "a:1" && c.Servers[1].URI == "b:1" && c.Servers[1].Credentials == "tls"
			},
		},
		"a server to fall back to that is the same": {
			body: `{` + plainNode + `, "xds_servers": [
				{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]},
				{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}]}`,
			check:    func(c *Config) bool { return len(c.Servers) == 2 },
			warnings: []string{"xds_servers[1]: is the same server as xds_servers[0]: there is nothing to fall back to"},
		},
		"the first credentials that are known": {
			body: `{` + plainNode + `, "xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "google_default"}, {"type": "tls", "config": {}}, {"type": "insecure"}]}]}`,
			check: func(c *Config) bool {
				return c.Servers[0].Credentials == "tls"
			},
			warnings: []string{`xds_servers[0].channel_creds[0]: "google_default" are credentials that lbd does not have: skipped`},
		},
		"features": {
			body: `{` + plainNode + `, "xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "insecure"}],
				"server_features": ["xds_v3", "ignore_resource_deletion", "trusted_xds_server", "xyz", "fail_on_data_errors", "resource_timer_is_transient_error"]}]}`,
			check: func(c *Config) bool {
				return c.Servers[0].FailOnDataErrors && c.Servers[0].ResourceTimerIsTransientError && c.Servers[0].TrustedXDSServer
			},
			warnings: []string{`xds_servers[0].server_features[3]: unknown feature "xyz", ignored`},
		},
		"unknown keys": {
			body: `{` + plainServers + `, "Node": {}, "node": {"id": "one", "id ": 1, "user_agent_name": "x"}, "xyz": []}`,
			check: func(c *Config) bool {
				return c.Node.GetId() == "one" && c.Node.GetUserAgentName() == "lbd"
			},
			warnings: []string{
				"Node: unknown key, ignored; did you mean node?",
				`node["id "]: unknown key, ignored; did you mean id?`,
				"node.user_agent_name: unknown key, ignored",
				"xyz: unknown key, ignored",
			},
		},
		"null is nothing": {
			body: `{` + plainServers + `, "node": {"id": "one", "locality": null, "metadata": null}, "authorities": null,
				"certificate_providers": null, "client_default_listener_resource_name_template": null, "allowed_grpc_services": null}`,
			check: func(c *Config) bool { return c.Node.GetLocality() == nil && c.ListenerTemplate == "%s" },
		},
		"what only gRPC's servers and side channels need": {
			body: `{` + plainServers + `, ` + plainNode + `, "server_listener_resource_name_template": "inbound/%s", "allowed_grpc_services": {}}`,
			check: func(c *Config) bool {
				return len(c.Servers) == 1
			},
			warnings: []string{"allowed_grpc_services: has no effect: lbd calls no side channels"},
		},
		"authorities": {
			body: `{` + plainServers + `, ` + plainNode + `, "authorities": {
				"plain": {},
				"own": {"client_listener_resource_name_template": "xdstp://own/envoy.config.listener.v3.Listener/lbd/%s?a=b",
					"xds_servers": [{"server_uri": "own:1", "channel_creds": [{"type": "insecure"}]}]},
				"": {"xds_servers": []}}}`,
			check: func(c *Config) bool {
				plain, own := c.Authorities["plain"], c.Authorities["own"]
				return len(c.Authorities) == 2 && plain.ListenerTemplate == "xdstp://plain/envoy.config.listener.v3.Listener/%s" && plain.Servers[0].URI == "control:18000" &&
					own.ListenerTemplate == "xdstp://own/envoy.config.listener.v3.Listener/lbd/%s?a=b" && len(own.Servers) == 1 && own.Servers[0].URI == "own:1"
			},
			warnings: []string{`authorities[""]: an authority needs a name: ignored, and so are names that begin with xdstp:///`},
		},
		"one Listener for all targets": {
			body:     `{` + plainServers + `, ` + plainNode + `, "client_default_listener_resource_name_template": "all"}`,
			check:    func(c *Config) bool { return c.ListenerTemplate == "all" },
			warnings: []string{`client_default_listener_resource_name_template: "all" has no %s: every target has the same Listener`},
		},
		"an unknown plugin": {
			body:     `{` + plainServers + `, ` + plainNode + `, "certificate_providers": {"a": {"plugin_name": "mesh_ca", "config": 1}}}`,
			check:    func(c *Config) bool { return len(c.CertificateProviders) == 0 },
			warnings: []string{`certificate_providers.a.plugin_name: "mesh_ca" is a plugin that lbd does not have, which has "file_watcher": a Cluster that names "a" is refused`},
		},
		"certificates that are not there yet": {
			body: `{` + plainNode + `, "xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "tls", "config":
				{"ca_certificate_file": "/nowhere/ca.pem", "spiffe_trust_bundle_map_file": "x"}}]}]}`,
			check: func(c *Config) bool { return c.Servers[0].Credentials == "tls" },
			warnings: []string{
				"xds_servers[0].channel_creds[0].config: ca_certificate_file /nowhere/ca.pem: no such file or directory; until it is good, no connection is made",
				"xds_servers[0].channel_creds[0].config.spiffe_trust_bundle_map_file: has no effect: lbd knows no SPIFFE bundle maps (an experiment of grpc-go, off there too)",
			},
		},
		"a token for an insecure server": { // as Istio's agent writes it; grpc-go uses call_creds only with an experiment
			body: `{` + plainNode + `, "xds_servers": [{"server_uri": "unix:///etc/istio/XDS", "channel_creds": [{"type": "insecure"}],
				"call_creds": [{"type": "other"}, {"type": "jwt_token_file", "config": {"jwt_token_file": "/token"}}]}]}`,
			check: func(c *Config) bool { return len(c.Servers[0].calls) == 0 },
			warnings: []string{
				`xds_servers[0].call_creds[0]: "other" are credentials that lbd does not have: skipped`,
				"xds_servers[0].call_creds[1]: is not used: a token is sent over TLS only, and channel_creds are insecure",
			},
		},
		"a host alone": {
			body:     `{` + plainNode + `, "xds_servers": [{"server_uri": "control.example", "channel_creds": [{"type": "tls"}]}]}`,
			check:    func(c *Config) bool { return c.Servers[0].URI == "control.example" },
			warnings: []string{`xds_servers[0].server_uri: "control.example" has no port: 443 is used`},
		},
		"a byte order mark": {
			body:  "\ufeff{" + plainServers + `, ` + plainNode + `}`,
			check: func(c *Config) bool { return len(c.Servers) == 1 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, row.body)
			if !row.check(c) {
				t.Errorf("got %+v", c)
			}
			if got := placeless(c.Warnings); !slices.Equal(got, row.warnings) {
				t.Errorf("warnings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(row.warnings, "\n"))
			}
		})
	}
}

func TestNode(t *testing.T) {
	c := parse(t, `{`+plainServers+`, "node": {"id": "one", "cluster": "edge", "locality": {"region": "r", "zone": "z", "sub_zone": "s"},
		"metadata": {"a": [1, -2.5e3, true, null, "x"], "b": {"c": {}}}}}`)
	want := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(`{"id": "one", "cluster": "edge", "locality": {"region": "r", "zone": "z", "subZone": "s"},
		"metadata": {"a": [1, -2500, true, null, "x"], "b": {"c": {}}}, "userAgentName": "lbd", "userAgentVersion": "v1.2.3",
		"clientFeatures": ["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"]}`), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(c.Node, want) {
		t.Errorf("got %v\nwant %v", c.Node, want)
	}
}

// Each error of a bootstrap.
func TestErrors(t *testing.T) {
	const bad = "xds.json: "
	withServer := func(server string) string { return `{"xds_servers": [` + server + `]}` }
	withTLS := func(config string) string {
		return withServer(`{"server_uri": "a:1", "channel_creds": [{"type": "tls", "config": ` + config + `}]}`)
	}
	with := func(field string) string { return `{` + plainServers + `, ` + field + `}` }
	for name, row := range map[string]struct{ body, want string }{
		"nothing":          {" \n", "it is empty"},
		"too large":        {strings.Repeat(" ", MaxBytes+1), "has more than 1048576 bytes"},
		"cut short":        {`{"xds_servers": [`, "line 1, column 18: the JSON is cut short"},
		"not JSON":         {"{\n  'node': 1}", `line 2, column 3: not JSON: invalid character '\'' looking for beginning of object key string`},
		"a comma too many": {"{\n  \"node\": {},\n}", `line 3, column 1: not JSON: invalid character '}' looking for beginning of object key string`},
		"more than JSON":   {`{} {}`, `line 1, column 4: not JSON: invalid character '{' after top-level value`},
		"YAML":             {"xds_servers:\n- server_uri: a:1\n", `line 1, column 1: not JSON: invalid character 'x' looking for beginning of value`},
		"too deep":         {with(`"node": {"metadata": {"a": ` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}}`), "nests deeper than 100"},
		"a list":           {`[]`, "is a list; it must be an object"},
		"null":             {`null`, "is null; it must be an object"},
		"a key twice": {
			with(`"node": {"id": "a", "id": "b"}`),
			"node.id: is there twice: which of them counts differs from reader to reader; remove one",
		},

		"no servers": {`{}`, `xds_servers: has no server; write [{"server_uri": "HOST:PORT", "channel_creds": [{"type": "insecure"}]}]`},
		"empty servers": {
			"{\n\"xds_servers\": []}",
			`xds_servers: has no server; write [{"server_uri": "HOST:PORT", "channel_creds": [{"type": "insecure"}]}]`,
		},
		"one server, no list": {`{"xds_servers": {}}`, "xds_servers: is an object; it must be a list"},
		"a server that is text": {
			withServer(`"a:1"`), "xds_servers[0]: is a string; it must be an object",
		},
		"a server that is null": {withServer(`null`), "xds_servers[0]: is null; it must be an object"},
		"a server without URI": {
			withServer(`{"channel_creds": [{"type": "insecure"}]}`),
			"xds_servers[0].server_uri: is empty; write HOST:PORT, or unix:///PATH",
		},
		"a server's URI that is empty": {
			withServer(`{"channel_creds": [{"type": "insecure"}], "server_uri": ""}`),
			"xds_servers[0].server_uri: is empty; write HOST:PORT, or unix:///PATH",
		},
		"a port as URI": {
			withServer(`{"server_uri": 18000, "channel_creds": [{"type": "insecure"}]}`),
			"xds_servers[0].server_uri: is a number; it must be a string",
		},
		"a URL": {
			withServer(`{"server_uri": "https://control:443/v3", "channel_creds": [{"type": "tls"}]}`),
			`xds_servers[0].server_uri: "https://control:443/v3" is a URL; write "control:443": channel_creds say whether TLS is used`,
		},
		"white space": {
			withServer(`{"server_uri": "control:443\n", "channel_creds": [{"type": "tls"}]}`),
			`xds_servers[0].server_uri: "control:443\n" has white space in it`,
		},
		"found by xDS": {
			withServer(`{"server_uri": "xds:///control", "channel_creds": [{"type": "tls"}]}`),
			`xds_servers[0].server_uri: "xds:///control" is a target of xDS; a management server is found without xDS, as HOST:PORT`,
		},

		"no credentials": {
			withServer(`{"server_uri": "a:1"}`),
			`xds_servers[0].channel_creds: is missing; write [{"type": "insecure"}] or [{"type": "tls"}]`,
		},
		"credentials of Google's": {
			withServer(`{"server_uri": "a:1", "channel_creds": [{"type": "google_default"}]}`),
			`xds_servers[0].channel_creds: has only "google_default"; lbd has "insecure" and "tls"; google_default, credentials of Google Cloud's, cannot be had`,
		},
		"credentials of others": {
			withServer(`{"server_uri": "a:1", "channel_creds": [{"type": "alts"}, {}]}`),
			`xds_servers[0].channel_creds: has only "alts", ""; lbd has "insecure" and "tls"`,
		},
		"credentials that are text": {
			withServer(`{"server_uri": "a:1", "channel_creds": "insecure"}`),
			"xds_servers[0].channel_creds: is a string; it must be a list",
		},
		"a key without certificate": {
			withTLS(`{"private_key_file": "/a/key.pem"}`),
			"xds_servers[0].channel_creds[0].config.private_key_file: is of no use without certificate_file",
		},
		"a certificate without key": {
			withTLS(`{"certificate_file": "/a/cert.pem"}`),
			"xds_servers[0].channel_creds[0].config.certificate_file: is of no use without private_key_file",
		},
		"certificate and key apart": {
			withTLS(`{"certificate_file": "/a/cert.pem", "private_key_file": "/b/key.pem"}`),
			"xds_servers[0].channel_creds[0].config.private_key_file: is in /b and certificate_file in /a: both files must be in the same directory, as gRPC requires",
		},
		"a file's name that is a list": {
			withTLS(`{"ca_certificate_file": ["/a/ca.pem"]}`),
			"xds_servers[0].channel_creds[0].config.ca_certificate_file: is a list; it must be a string",
		},
		"an interval in minutes": {
			withTLS(`{"refresh_interval": "10m"}`),
			`xds_servers[0].channel_creds[0].config.refresh_interval: "10m" is no duration in seconds; write "600s", or "0.5s"`,
		},
		"an interval in the past": {
			withTLS(`{"refresh_interval": "-1s"}`),
			`xds_servers[0].channel_creds[0].config.refresh_interval: "-1s" is no duration in seconds; write "600s", or "0.5s"`,
		},
		"an interval without unit": {
			withTLS(`{"refresh_interval": 600}`),
			"xds_servers[0].channel_creds[0].config.refresh_interval: is a number; it must be a string",
		},
		"no token": {
			withServer(`{"server_uri": "a:1", "channel_creds": [{"type": "tls"}], "call_creds": [{"type": "jwt_token_file"}]}`),
			"xds_servers[0].call_creds[0].config.jwt_token_file: is empty; write the path of the file that holds the token",
		},
		"features that are text": {
			withServer(`{"server_uri": "a:1", "channel_creds": [{"type": "tls"}], "server_features": "xds_v3"}`),
			"xds_servers[0].server_features: is a string; it must be a list",
		},

		"a node that is text": {with(`"node": "one"`), "node: is a string; it must be an object"},
		"an id that is none":  {with(`"node": {"id": 7}`), "node.id: is a number; it must be a string"},
		"a locality that is none": {
			with(`"node": {"locality": {"region": true}}`), "node.locality.region: is true or false; it must be a string",
		},
		"metadata that is a list": {with(`"node": {"metadata": []}`), "node.metadata: is a list; it must be an object"},
		"metadata beyond numbers": {
			with(`"node": {"metadata": {"a": [1e999]}}`), "node.metadata.a[0]: 1e999 is too large a number",
		},

		"an authority's template of another": {
			with(`"authorities": {"a": {"client_listener_resource_name_template": "xdstp://ab/envoy.config.listener.v3.Listener/%s"}}`),
			`authorities.a.client_listener_resource_name_template: "xdstp://ab/envoy.config.listener.v3.Listener/%s" must begin with xdstp://a/`,
		},
		"an authority's template without one": {
			with(`"authorities": {"a b": {"client_listener_resource_name_template": "%s"}}`),
			`authorities["a b"].client_listener_resource_name_template: "%s" must begin with xdstp://a%20b/`,
		},
		"a template of an unknown authority": {
			with(`"client_default_listener_resource_name_template": "xdstp://a/envoy.config.listener.v3.Listener/%s"`),
			`client_default_listener_resource_name_template: "xdstp://a/envoy.config.listener.v3.Listener/%s" names the authority "a", which authorities does not have`,
		},
		"a template that is no name": {
			with(`"client_default_listener_resource_name_template": "xdstp:%s"`),
			`client_default_listener_resource_name_template: "xdstp:%s" must be xdstp://AUTHORITY/envoy.config.listener.v3.Listener/%s, or not begin with xdstp:`,
		},

		"a provider without config": {
			with(`"certificate_providers": {"a": {"plugin_name": "file_watcher"}}`),
			`certificate_providers.a.config: is missing; write which files are to be read, such as {"ca_certificate_file": "/etc/lbd/ca.pem"}`,
		},
		"a provider without files": {
			with(`"certificate_providers": {"a": {"plugin_name": "file_watcher", "config": {}}}`),
			"certificate_providers.a.config: names no file; write certificate_file with private_key_file, or ca_certificate_file, or all of them",
		},
		"several at once": {
			withServer(`{"server_uri": "", "channel_creds": []}, 1`),
			`xds_servers[0].server_uri: is empty; write HOST:PORT, or unix:///PATH; ` +
				`xds_servers[0].channel_creds: is missing; write [{"type": "insecure"}] or [{"type": "tls"}]; ` +
				"xds_servers[1]: is a number; it must be an object",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Parse([]byte(row.body), Options{Source: "xds.json"})
			var invalid *InvalidError
			if !errors.As(err, &invalid) || c != nil {
				t.Fatalf("got %v, %v", c, err)
			}
			got := err.Error()
			if !strings.Contains(row.want, "line ") {
				got = bad + strings.Join(placeless(invalid.Problems), "; ")
			}
			if got != bad+row.want {
				t.Errorf("got\n%s\nwant\n%s", got, bad+row.want)
			}
		})
	}
}

// The position of each problem and warning is a mark in the text.
func TestPlaces(t *testing.T) {
	const mark = "§"
	for name, body := range map[string]string{
		"values": "{\n\t\"xds_servers\": [\n\t\t§1,\n\t\t{\"server_uri\" : §\"\" , \"channel_creds\": §[]}\n\t]\n}",
		"keys":   "{\"xds_servers\": [{\"server_uri\": \"a:1\", \"channel_creds\": [{\"type\": \"tls\", §\"confg\": {}}]}],\r\n\"node\": {\"id\": \"one\"}, §\"ünode\"\n: 1,\n§\"nodes\": {}}",
		"absent": `{"xds_servers": [{"server_uri": "a:1", "channel_creds": [{"type": "tls", "config": §{"certificate_file": "/nowhere/c", "private_key_file": "/nowhere/k"}}]}], "node": §{}}`,
		"twice":  "{\"node\": {\"id\": \"one\",\n§\"id\": \"two\"}}",
		"once":   "{\"node\": {\"metadata\": {\"a\": [[], {}, true, -1.5e3 , §1e400]}}, \"xds_servers\": [{\"server_uri\": \"a:1\", \"channel_creds\": [{\"type\": \"tls\"}]}]}",
	} {
		t.Run(name, func(t *testing.T) {
			var want [][2]int
			parts := strings.Split(body, mark)
			for i := range parts[1:] {
				before := []byte(strings.Join(parts[:i+1], ""))
				line, column := text.Position(before, len(before))
				want = append(want, [2]int{line, column})
			}
			c, err := Parse([]byte(strings.Join(parts, "")), Options{})
			var found []Problem
			if invalid := (*InvalidError)(nil); errors.As(err, &invalid) {
				found = invalid.Problems
			} else {
				found = c.Warnings
			}
			var got [][2]int
			for _, p := range found {
				got = append(got, [2]int{p.Line, p.Column})
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v at %v, want %v", found, got, want)
			}
		})
	}
}

func TestMaxProblems(t *testing.T) {
	_, err := Parse([]byte(`{"xds_servers": [`+strings.Repeat("1,", 149)+`1]}`), Options{})
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 101 || invalid.Problems[100].Reason != "and 50 more like these" {
		t.Errorf("got %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, id string) string {
		file := filepath.Join(dir, name)
		noError(t, os.WriteFile(file, []byte(`{`+plainServers+`, "node": {"id": "`+id+`"}}`), 0o600))
		return file
	}
	flag, variable := write("flag.json", "flag"), write("variable.json", "variable")
	content := `{` + plainServers + `, "node": {"id": "content"}}`
	missing := filepath.Join(dir, "missing.json")
	for name, row := range map[string]struct {
		file, fileVariable, contentVariable string
		id, source, err                     string
	}{
		"none":                     {},
		"the flag is used first":   {flag, variable, content, "flag", "bootstrap file " + flag, ""},
		"then the file's variable": {"", variable, content, "variable", "bootstrap file " + variable + " (of GRPC_XDS_BOOTSTRAP)", ""},
		"then the content's":       {"", "", content, "content", "bootstrap in GRPC_XDS_BOOTSTRAP_CONFIG", ""},
		"a flag's file that is missing": {
			missing, variable, content, "", "", "bootstrap file " + missing + ": no such file or directory",
		},
		"a variable's file that is missing": {
			"", missing, content, "", "", "bootstrap file " + missing + " (of GRPC_XDS_BOOTSTRAP): no such file or directory",
		},
		"a directory":     {dir, "", "", "", "", "bootstrap file " + dir + ": is a directory"},
		"an endless file": {"/dev/zero", "", "", "", "", "bootstrap file /dev/zero: has more than 1048576 bytes"},
		"a bad variable":  {"", "", "{", "", "", "bootstrap in GRPC_XDS_BOOTSTRAP_CONFIG: line 1, column 2: the JSON is cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(FileVariable, row.fileVariable)
			t.Setenv(ContentVariable, row.contentVariable)
			c, err := Load(Options{File: row.file})
			if err != nil || row.err != "" {
				if err == nil || err.Error() != row.err {
					t.Errorf("got %v, want %q", err, row.err)
				}
				return
			}
			if c == nil && row.id == "" {
				return
			}
			if c.Node.GetId() != row.id || c.Source != row.source {
				t.Errorf("got %q of %q, want %q of %q", c.Node.GetId(), c.Source, row.id, row.source)
			}
		})
	}
}
