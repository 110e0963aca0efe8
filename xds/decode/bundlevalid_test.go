package decode_test

import (
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// What is valid of a body is separated from the Clusters that are not: these may ask
// for TLS, also by a misspelled field.
func TestRejectedClusters(t *testing.T) {
	const (
		cluster = `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"a","type":"EDS"`
		other   = `{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"a","foo":1}`
	)
	socket := upstream(`"common_tls_context":{"validation_context":{"system_root_certs":{}}}`)
	for _, c := range []struct {
		name, body string
		items      int
		want       string // a part of why a is rejected; empty if it is not
	}{
		{"a rule", `{"resources":[` + cluster + `,"lb_policy":"MAGLEV"},` + other + `]}`, 1, `resources[0].lb_policy: MAGLEV is not supported`},
		{"alone", `{"resources":[` + cluster + `,"lb_policy":"MAGLEV"}]}`, 0, `resources[0].lb_policy: MAGLEV is not supported`},
		{"bare", cluster + `,"lb_policy":"MAGLEV"}`, 0, `lb_policy: MAGLEV is not supported`},
		{"bare, with a value of the wrong type", cluster + `,"connect_timeout":[]}`, 0, `connect_timeout`},
		{"an unknown field", `{"resources":[` + cluster + `,"foo":1},` + other + `]}`, 2, ""},
		{"an unknown field like transport_socket", cluster + "," + strings.Replace(socket, "transport_socket", "transport_sockt", 1) + "}", 0, "transport_sockt: unknown field (did you mean transport_socket?)"},
		{"in lowerCamelCase", cluster + "," + strings.Replace(socket, `"transport_socket"`, `"transportSockets"`, 1) + "}", 0, "transportSockets: unknown field"},
		{"an unknown field of TLS", cluster + "," + strings.Replace(socket, "system_root_certs", `match_subject_alt_name":[],"system_root_certs`, 1) + "}", 0, "match_subject_alt_name: unknown field"},
		{"another resource", `{"resources":[` + other + `,{"@type":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment","cluster_name":""}]}`, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := decode.Options{Lenient: true, Bare: true}
			b := decode.Valid([]byte(c.body), o)
			if b == nil || len(b.Items) != c.items {
				t.Fatalf("valid are %+v", b)
			}
			if c.want == "" {
				if len(b.Rejected) != 0 {
					t.Errorf("rejected %+v", b.Rejected)
				}
				return
			}
			if len(b.Rejected) != 1 || b.Rejected[0].Key != (resource.Key{Type: resource.TypeCluster, Name: "a"}) || !strings.Contains(b.Rejected[0].Why, c.want) {
				t.Errorf("rejected %+v, want %q", b.Rejected, c.want)
			}
		})
	}
}
