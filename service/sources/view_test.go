package sources_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/test/servicetest"
	"github.com/lbd-dev/lbd/xds/decode"
	xdsencode "github.com/lbd-dev/lbd/xds/encode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// providers are certificate providers of which each has roots and an identity.
func providers(string) (roots, identity, ok bool) { return true, true, true }

// TestEncodedValues decodes resources, encodes their values and decodes the result: the values are equal.
func TestEncodedValues(t *testing.T) {
	const (
		typed  = `"@type":"type.googleapis.com/`
		wrr    = typed + `envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality"`
		struc  = typed + `xds.type.v3.TypedStruct"`
		socket = `"transport_socket":{"name":"envoy.transport_sockets.tls","typed_config":{` + typed + `envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",`
	)
	policy := func(config string) string {
		return `"load_balancing_policy":{"policies":[{"typed_extension_config":{"name":"x","typed_config":{` + config + `}}}]}`
	}
	within := func(config string) string {
		return policy(wrr + `,"endpoint_picking_` + strings.TrimPrefix(policy(config), `"load_balancing_`))
	}
	eds := func(more ...string) string {
		return `{"type":"EDS"` + strings.Join(append([]string{""}, more...), ",") + `}`
	}
	for kind, bodies := range map[resource.Type][]string{
		resource.TypeAssignment: {
			`{}`,
			`{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"::1","port_value":80}}}}]}]}`,
			`{"policy":{"drop_overloads":[{"category":"lb","drop_percentage":{"numerator":7,"denominator":"TEN_THOUSAND"}}]},"endpoints":[
			  {"locality":{"region":"r","zone":"z","sub_zone":"s"},"load_balancing_weight":3,"lb_endpoints":[
			    {"health_status":"DRAINING","load_balancing_weight":7,"metadata":{"filter_metadata":{"envoy.lb":{"hash_key":"k"}}},
			     "endpoint":{"hostname":"h","address":{"socket_address":{"address":"10.0.0.1","port_value":80}},
			       "additional_addresses":[{"address":{"socket_address":{"address":"10.0.0.2","port_value":81}}}]}}]},
			  {"priority":1,"load_balancing_weight":1,"lb_endpoints":[]}]}`,
		},
		resource.TypeCluster: {
			eds(),
			eds(`"eds_cluster_config":{"service_name":"s","eds_config":{"ads":{}}}`),
			`{"type":"LOGICAL_DNS","load_assignment":{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"h.example","port_value":80}}}}]}]}}`,
			`{"cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{` + typed + `envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["a","b"]}}}`,
			eds(`"circuit_breakers":{"thresholds":[{"max_requests":0}]}`),
			eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"none","limit_scope":"fleet","max_lease_share":0.25,"max_backoff":"10s"}}}`),
			eds(`"lrs_server":{"self":{}}`, `"lrs_report_endpoint_metrics":["cpu_utilization","named_metrics.b","named_metrics.a"]`),
			eds(`"lrs_report_endpoint_metrics":["mem_utilization","application_utilization","named_metrics.*"]`),
			eds(`"outlier_detection":{}`),
			eds(`"outlier_detection":{"interval":"1.5s","enforcing_success_rate":0,"enforcing_failure_percentage":7,"max_ejection_percent":0,"failure_percentage_threshold":0}`),
			eds(`"outlier_detection":{"enforcing_success_rate":3,"success_rate_stdev_factor":1,"success_rate_minimum_hosts":0,"success_rate_request_volume":0}`),
			eds(`"lb_policy":"RING_HASH"`, `"ring_hash_lb_config":{"minimum_ring_size":7,"maximum_ring_size":9000}`),
			eds(`"lb_policy":"LEAST_REQUEST"`, `"least_request_lb_config":{"choice_count":5}`),
			eds(policy(typed + `envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"`)),
			eds(within(typed + `envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest","choice_count":3`)),
			eds(within(typed + `envoy.extensions.load_balancing_policies.pick_first.v3.PickFirst","shuffle_address_list":true`)),
			eds(within(typed + `envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin","blackout_period":"0.5s","error_utilization_penalty":0.7`)),
			eds(policy(struc + `,"type_url":"x/ring_hash_experimental","value":{"minRingSize":7,"maxRingSize":9.0e2}`)),
			eds(socket + `"common_tls_context":{"validation_context":{"system_root_certs":{}}}}}`),
			eds(socket + `"sni":"s","auto_sni_san_validation":true,"common_tls_context":{"tls_certificate_provider_instance":{"instance_name":"a","certificate_name":"b"},
			  "validation_context":{"ca_certificate_provider_instance":{"instance_name":"c"},"match_subject_alt_names":[
			    {"exact":"A","ignore_case":true},{"prefix":"p"},{"suffix":"s"},{"contains":"c"},{"safe_regex":{"regex":"a|b"}}]}}}}`),
		},
	} {
		for _, body := range bodies {
			o := decode.Options{Format: decode.FormatJSON, Name: "orders", Policies: lb.PolicyTraits, Certificates: providers, Fleet: true}
			want, err := decode.One(kind, []byte(body), o)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			var raw []byte
			if kind == resource.TypeCluster {
				raw, err = xdsencode.Cluster(want.Cluster)
			} else {
				raw, err = xdsencode.Assignment(want.Assignment)
			}
			servicetest.Must(t, err)
			o.Format = decode.FormatProtobuf
			got, err := decode.One(kind, raw, o)
			if err != nil {
				t.Errorf("%s: %v", body, err)
				continue
			}
			if len(got.Warnings) > len(want.Warnings) {
				t.Errorf("%s: warnings %v, want %v", body, got.Warnings, want.Warnings)
			}
			if !reflect.DeepEqual(got.Cluster, want.Cluster) || !reflect.DeepEqual(got.Assignment, want.Assignment) {
				t.Errorf("%s:\ngot  %+v %+v\nwant %+v %+v", body, got.Cluster, got.Assignment, want.Cluster, want.Assignment)
			}
		}
	}
}

// TestViews reads a cluster of a file under an overlay: what picks use can be pushed, and is the same then.
func TestViews(t *testing.T) {
	d := startFiled(t, &archive{})
	s := d.Service
	d.scan(map[string]int{"orders": 2})
	servicetest.Must(t, s.Sources.Settle(t.Context()))
	putOverlay(t, s, "one", drain("orders-0:80"))
	view := func(kind sources.Kind, v sources.View) *sources.Viewed {
		t.Helper()
		is, err := s.Sources.View(t.Context(), "", kind, "orders", v, sources.JSON)
		servicetest.Must(t, err)
		return is
	}
	source, effective := view(sources.Endpoints, sources.ViewSource), view(sources.Endpoints, sources.ViewEffective)
	if body := string(source.Body.Bytes()); strings.Contains(body, "DRAINING") || !strings.Contains(body, "orders-0") || source.From != resource.SourceFile {
		t.Errorf("source: %s of %s", body, source.From)
	}
	if body := string(effective.Body.Bytes()); strings.Count(body, "DRAINING") != 1 || effective.Overlays != 1 {
		t.Errorf("effective, with %d overlays: %s", effective.Overlays, body)
	}
	servicetest.Push(t, s, sources.Endpoints, "orders", effective.Body.Bytes())
	_, err := s.Sources.DeleteOverlay(t.Context(), "orders", "one", sources.ChangeOptions{})
	servicetest.Must(t, err)
	if again := view(sources.Endpoints, sources.ViewEffective); again.Hash != effective.Hash || again.From != resource.SourcePush {
		t.Errorf("after the push: %s of %s", again.Body.Bytes(), again.From)
	}
	if config := view(sources.Config, sources.ViewSource); !strings.Contains(string(config.Body.Bytes()), `"name": "orders"`) || config.From != resource.SourceDefault {
		t.Errorf("config: %s of %s", config.Body.Bytes(), config.From)
	}
	if _, err := s.Sources.View(t.Context(), "", sources.Endpoints, "x", sources.ViewSource, sources.JSON); servicetest.Code(err) != fault.UnknownCluster {
		t.Errorf("an unknown cluster: %v", err)
	}
	servicetest.Push(t, s, sources.Config, "empty", servicetest.Config(3))
	if _, err := s.Sources.View(t.Context(), "", sources.Endpoints, "empty", sources.ViewSource, sources.JSON); servicetest.Code(err) != fault.UnknownCluster || !strings.Contains(err.Error(), "ClusterLoadAssignment/empty is not known") {
		t.Errorf("a cluster without endpoints: %v", err)
	}
}
