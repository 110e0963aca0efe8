package decode_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

const plainHint = "for connections without TLS write metadata: {filter_metadata: {lbd: {connect: tcp}}}"

// provides are certificate providers: roots has no certificate, own no roots, mesh
// has both.
func provides(name string) (roots, identity, ok bool) {
	switch name {
	case "roots":
		return true, false, true
	case "own":
		return false, true, true
	case "mesh":
		return true, true, true
	default:
		return false, false, false
	}
}

// upstream is the JSON of a transport_socket of TLS with these fields.
func upstream(fields string) string {
	return `"transport_socket":{"name":"envoy.transport_sockets.tls","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",` + fields + `}}`
}

func TestClustersAreSecured(t *testing.T) {
	const (
		context  = "transport_socket.typed_config.common_tls_context."
		root     = `"ca_certificate_provider_instance":{"instance_name":"roots","certificate_name":"r"}`
		identity = `"tls_certificate_provider_instance":{"instance_name":"own","certificate_name":"i"}`
		noRoot   = "names no certificate provider instance for the roots: write ca_certificate_provider_instance, or system_root_certs"
		notThere = "required, unless system_root_certs is set"
		newer    = "is not supported: write tls_certificate_provider_instance"
	)
	common := func(fields ...string) string {
		return upstream(`"common_tls_context":{` + strings.Join(fields, ",") + `}`)
	}
	valid := func(fields ...string) string { return `"validation_context":{` + strings.Join(fields, ",") + `}` }
	combined := func(fields string) string { return `"combined_validation_context":{` + fields + `}` }
	roots := resource.Security{RootInstance: "roots", RootCertificate: "r"}
	with := func(change func(*resource.Security)) *resource.Security { s := roots; change(&s); return &s }
	none := func(*resource.Security) {}

	for _, c := range []struct {
		name   string
		socket string
		want   *resource.Security
		refuse string // what refuses it
	}{
		{"roots", common(valid(root)), with(none), ""},
		{"roots in a combined context", common(combined(`"default_validation_context":{` + root + `}`)), with(none), ""},
		{"an own certificate", common(identity, valid(root)), with(func(s *resource.Security) { s.IdentityInstance, s.IdentityCertificate = "own", "i" }), ""},
		{"system roots", common(valid(`"system_root_certs":{}`)), &resource.Security{SystemRoots: true}, ""},
		{"roots go before system roots", common(valid(root, `"system_root_certs":{}`)), with(none), ""},
		{"names", common(valid(root, `"match_subject_alt_names":[{"exact":"A","ignore_case":true},{"prefix":"p"},{"suffix":"s"},{"contains":"c"},{"safe_regex":{"regex":"r"}}]`)), with(func(s *resource.Security) {
			s.SANs = []resource.StringMatch{
				{Value: "a", CaseInsensitive: true},
				{Kind: resource.MatchPrefix, Value: "p"},
				{Kind: resource.MatchSuffix, Value: "s"},
				{Kind: resource.MatchContains, Value: "c"},
				{Kind: resource.MatchRegex, Regex: regexp.MustCompile("^(?:r)$")},
			}
		}), ""},
		{"SNI", upstream(`"common_tls_context":{` + valid(root) + `},"sni":"n","auto_host_sni":true,"auto_sni_san_validation":true`), with(func(s *resource.Security) {
			s.SNI, s.AutoHostSNI, s.AutoSANValidation = "n", true, true
		}), ""},
		{"what is passed over", upstream(`"allow_renegotiation":true,"common_tls_context":{"alpn_protocols":["h2"],` + valid(root, `"trusted_ca":{"filename":"f"}`, `"allow_expired_certificate":true`) + `}`), with(none), ""},
		{"deprecated", common(`"validation_context_certificate_provider_instance":{"instance_name":"roots","certificate_name":"r"}`), with(none), ""},
		{
			"all that is deprecated", common(`"tls_certificate_certificate_provider_instance":{"instance_name":"own","certificate_name":"i"}`,
				combined(`"default_validation_context":{"match_subject_alt_names":[{"exact":"a"}]},"validation_context_certificate_provider_instance":{"instance_name":"roots","certificate_name":"r"}`)),
			with(func(s *resource.Security) {
				s.IdentityInstance, s.IdentityCertificate, s.SANs = "own", "i", []resource.StringMatch{{Value: "a"}}
			}), "",
		},
		{"deprecated beside what is not supported", common(`"tls_certificates":[{}]`, `"validation_context_certificate_provider_instance":{"instance_name":"roots","certificate_name":"r"}`), with(none), ""},

		{"another name", strings.Replace(common(valid(root)), "sockets.tls", "sockets.x", 1), nil, `transport_socket.name: is "envoy.transport_sockets.x": it must be "envoy.transport_sockets.tls"`},
		{"TLS through a proxy, which gRPC has by GRPC_EXPERIMENTAL_XDS_HTTP_CONNECT only", `"transport_socket":{"name":"envoy.transport_sockets.http_11_proxy","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.http_11_proxy.v3.Http11ProxyUpstreamTransport"}}`, nil, `transport_socket.name: is "envoy.transport_sockets.http_11_proxy": it must be "envoy.transport_sockets.tls"`},
		{"no configuration", `"transport_socket":{"name":"envoy.transport_sockets.tls"}`, nil, `transport_socket.typed_config: is "": it must be a envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext`},
		{"no context", upstream(`"sni":"n"`), nil, context[:len(context)-1] + ": is absent"},
		{"an empty context", common(), nil, context + "validation_context: " + noRoot},
		{"an own certificate alone", common(identity), nil, context + "validation_context: " + noRoot},
		{"a validation of nothing", common(valid()), nil, context + "validation_context.ca_certificate_provider_instance: " + notThere},
		{"a combined validation of nothing", common(combined("")), nil, context + "combined_validation_context.default_validation_context.ca_certificate_provider_instance: " + notThere},
		{"roots from a file", common(valid(`"trusted_ca":{"filename":"f"}`)), nil, context + "validation_context.ca_certificate_provider_instance: " + notThere},
		{"roots from SDS", common(`"validation_context_sds_secret_config":{"name":"n"}`), nil, context + "validation_context_sds_secret_config: is not supported: write validation_context"},
		{"certificates", common(valid(root), `"tls_certificates":[{}]`), nil, context + "tls_certificates: " + newer},
		{"certificates from SDS", common(valid(root), `"tls_certificate_sds_secret_configs":[{"name":"n"}]`), nil, context + "tls_certificate_sds_secret_configs: " + newer},
		{"TLS parameters", common(valid(root), `"tls_params":{}`), nil, context + "tls_params: is not supported"},
		{"a handshaker", common(valid(root), `"custom_handshaker":{"name":"x"}`), nil, context + "custom_handshaker: is not supported"},
		{"spki", common(valid(root, `"verify_certificate_spki":["a"]`)), nil, context + "validation_context.verify_certificate_spki: is not supported"},
		{"hash", common(valid(root, `"verify_certificate_hash":["a"]`)), nil, context + "validation_context.verify_certificate_hash: is not supported"},
		{"timestamps", common(valid(root, `"require_signed_certificate_timestamp":true`)), nil, context + "validation_context.require_signed_certificate_timestamp: is not supported"},
		{"no timestamps", common(valid(root, `"require_signed_certificate_timestamp":false`)), with(none), ""},
		{"crl", common(valid(root, `"crl":{}`)), nil, context + "validation_context.crl: is not supported"},
		{"a validator", common(valid(root, `"custom_validator_config":{"name":"x"}`)), nil, context + "validation_context.custom_validator_config: is not supported"},
		{"an empty name", common(valid(root, `"match_subject_alt_names":[{"prefix":""}]`)), nil, context + "validation_context.match_subject_alt_names[0].prefix: is empty"},
		{"a bad name", common(valid(root, `"match_subject_alt_names":[{"exact":"a"},{"safe_regex":{"regex":"["}}]`)), nil, context + "validation_context.match_subject_alt_names[1].safe_regex.regex: is no regular expression of RE2: missing closing ]: `[`"},
		{"a long SNI", upstream(`"sni":"` + strings.Repeat("n", 256) + `","common_tls_context":{` + valid(root) + `}`), nil, "transport_socket.typed_config.sni: is 256 bytes long, of at most 255"},
		{"unknown roots", common(valid(`"ca_certificate_provider_instance":{"instance_name":"x"}`)), nil, context[:len(context)-1] + `: names the certificate provider instance "x", which the bootstrap does not have`},
		{"an unknown certificate", common(valid(root), `"tls_certificate_provider_instance":{"instance_name":"x"}`), nil, context[:len(context)-1] + `: names the certificate provider instance "x", which the bootstrap does not have`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, by := range []struct {
				origin decode.Origin
				suffix string
			}{{decode.ByHand, "; " + plainHint}, {decode.FromServer, ""}} {
				o := decode.Options{Origin: by.origin, Certificates: provides}
				d, err := decode.One(resource.TypeCluster, []byte(eds(c.socket)), o)
				if c.refuse != "" {
					if got := reported(d, err); len(got) != 1 || got[0] != c.refuse+by.suffix {
						t.Errorf("origin %v reported %q, want %q", by.origin, got, c.refuse+by.suffix)
					}
				} else if err != nil || !reflect.DeepEqual(d.Cluster.Security, c.want) || len(applicable(d.Warnings)) != 0 {
					t.Errorf("origin %v: %+v, %v, want %+v", by.origin, d, err, c.want)
				}
			}
		})
	}

	// Without a bootstrap there are no instances.
	o := decode.Options{Origin: decode.FromServer}
	if d, err := decode.One(resource.TypeCluster, []byte(eds(common(valid(root)))), o); err == nil {
		t.Errorf("took %+v", d.Cluster.Security)
	}
	if d, err := decode.One(resource.TypeCluster, []byte(eds(common(valid(`"system_root_certs":{}`)))), o); err != nil || !d.Cluster.Security.SystemRoots {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestSecurityThatCannotBeHonored: connections are plain only if the author asks for
// them. What is stored already stays in force with a warning, but its handshakes do
// not trust roots that the cluster does not name.
func TestSecurityThatCannotBeHonored(t *testing.T) {
	const (
		roots    = `"ca_certificate_provider_instance":{"instance_name":%q}`
		identity = `"tls_certificate_provider_instance":{"instance_name":%q},`
	)
	socket := func(identityName, rootName string) string {
		context := `"validation_context":{` + fmt.Sprintf(roots, rootName) + `}`
		if identityName != "" {
			context = fmt.Sprintf(identity, identityName) + context
		}
		return upstream(`"common_tls_context":{` + context + `}`)
	}
	connect := func(mode string) string { return `,"metadata":{"filter_metadata":{"lbd":{"connect":"` + mode + `"}}}` }
	var (
		envoy    = upstream(`"common_tls_context":{"validation_context":{"trusted_ca":{"filename":"f"}}}`)
		unknown  = socket("", "unknown")
		noRoots  = socket("", "own")
		noOwn    = socket("roots", "roots")
		mesh     = socket("mesh", "mesh")
		hand     = decode.Options{Certificates: provides}
		stored   = decode.Options{Certificates: provides, Stored: true}
		server   = decode.Options{Certificates: provides, Origin: decode.FromServer}
		accepted = resource.Security{RootInstance: "own"}
		misnamed = strings.Replace(mesh, "envoy.transport_sockets.tls", "envoy.transport_sockets.raw_buffer", 1)
	)
	for _, tt := range []struct {
		name   string
		json   string
		o      decode.Options
		want   *resource.Security // nil: plain
		refuse string             // a part of the reason, of the refusal
		warn   string             // or of the only warning
	}{
		{"complete", mesh, hand, &resource.Security{RootInstance: "mesh", IdentityInstance: "mesh"}, "", ""},
		{"Envoy's", envoy, hand, nil, "system_root_certs is set; " + plainHint, ""},
		{"Envoy's, and plain connections", envoy + connect("tcp"), hand, nil, "", `ignored: lbd.connect is "tcp", so connections do not use TLS`},
		{"Envoy's, and held ones", envoy + connect("tcp_hold"), hand, nil, "", `ignored: lbd.connect is "tcp_hold", so connections do not use TLS`},
		{"Envoy's, and none", envoy + connect("none"), hand, nil, "", `ignored: lbd.connect is "none", so connections do not use TLS`},
		{"Envoy's, and TLS", envoy + connect("tls"), hand, nil, "system_root_certs", ""},
		{"Envoy's, of a server that asks for plain connections", envoy + connect("tcp"), server, nil, "system_root_certs", ""},
		{"a plain socket", `"transport_socket":{"name":"envoy.transport_sockets.raw_buffer","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer"}}`, hand, nil, "", ""},
		{"a plain socket by name", `"transport_socket":{"name":"envoy.transport_sockets.raw_buffer"}`, hand, nil, "", ""},
		{"TLS by the name of a plain socket", misnamed, hand, nil, `it must be "envoy.transport_sockets.tls"; ` + plainHint, ""},
		{"TLS by the name of a plain socket, and plain connections", misnamed + connect("tcp"), hand, nil, "", "so connections do not use TLS"},
		{"TLS by the name of a plain socket, stored", misnamed, stored, nil, `it must be "envoy.transport_sockets.tls"; ` + plainHint, ""},
		{"a plain socket, of a server", `"transport_socket":{"name":"envoy.transport_sockets.raw_buffer"}`, server, nil, `it must be "envoy.transport_sockets.tls"`, ""},
		{"a socket that can be honored, checked by tcp", mesh + connect("tcp"), hand, &resource.Security{RootInstance: "mesh", IdentityInstance: "mesh"}, "", ""},

		{"unknown provider", unknown, hand, nil, `"unknown", which the bootstrap does not have; ` + plainHint, ""},
		{"unknown provider, no bootstrap", unknown, decode.Options{}, nil, `"unknown", which the bootstrap does not have`, ""},
		{"unknown provider, stored", unknown, stored, &resource.Security{RootInstance: "unknown"}, "", "every TLS handshake fails"},
		{"unknown provider, stored with plain connections", unknown + connect("tcp"), stored, nil, "", "so connections do not use TLS"},
		{"unknown provider, stored, no bootstrap", unknown, decode.Options{Stored: true}, &resource.Security{RootInstance: "unknown"}, "", "every TLS handshake fails"},

		{"no roots", noRoots, hand, nil, `"own", which has no ca_certificate_file in the bootstrap: add it, or write system_root_certs: {}`, ""},
		{"no roots, and plain connections", noRoots + connect("tcp"), hand, nil, "", "so connections do not use TLS"},
		{"no roots, stored", noRoots, stored, &accepted, "", "every TLS handshake fails"},
		{"no roots, of a server", noRoots, server, &accepted, "", "every TLS handshake fails"},

		{"no certificate", noOwn, hand, nil, `"roots", which has no certificate_file in the bootstrap: add it with private_key_file`, ""},
		{"no certificate, stored", noOwn, stored, &resource.Security{RootInstance: "roots", IdentityInstance: "roots"}, "", "no certificate is shown"},
		{"no certificate, of a server", noOwn, server, &resource.Security{RootInstance: "roots", IdentityInstance: "roots"}, "", "no certificate is shown"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := decode.One(resource.TypeCluster, []byte(eds(tt.json)), tt.o)
			if tt.refuse != "" {
				if got := reported(d, err); len(got) != 1 || !strings.Contains(got[0], tt.refuse) {
					t.Errorf("reported %q, want %q", got, tt.refuse)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(d.Cluster.Security, tt.want) {
				t.Fatalf("%+v, %v, want %+v", d, err, tt.want)
			}
			got := lines(d.Warnings)
			if (tt.warn == "") != (len(got) == 0) || tt.warn != "" && (len(got) != 1 || !strings.Contains(got[0], tt.warn)) {
				t.Errorf("warnings %q, want %q", got, tt.warn)
			}
		})
	}
}

func TestEqualSecurity(t *testing.T) {
	with := func(sni, regex string) *resource.Security {
		return &resource.Security{SNI: sni, SANs: []resource.StringMatch{{Kind: resource.MatchRegex, Regex: regexp.MustCompile(regex)}}}
	}
	var none *resource.Security
	same := with("n", "r+")
	if !same.Equal(with("n", "r+")) || !none.Equal(nil) {
		t.Error("the same is not equal")
	}
	for _, other := range []*resource.Security{none, {}, with("x", "r+"), with("n", "r*")} {
		if same.Equal(other) || other.Equal(same) {
			t.Errorf("%+v equals %+v", other, same)
		}
	}
}
