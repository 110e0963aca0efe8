package decode_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// notApplied begins the reason of a warning about a field that is not applied.
const notApplied = "is not applied"

// applicable are the warnings but for those about fields that are not applied.
func applicable(warnings []decode.Problem) []string {
	return lines(slices.DeleteFunc(slices.Clone(warnings), func(p decode.Problem) bool { return strings.HasPrefix(p.Reason, notApplied) }))
}

// TestFieldsThatAreNotApplied: what each kind of resource is warned of, through all
// that carries messages.
func TestFieldsThatAreNotApplied(t *testing.T) {
	const (
		tls  = "transport_socket.typed_config"
		in   = "api_listener.api_listener"
		host = in + ".route_config.virtual_hosts[0]"
		url  = "type.googleapis.com/envoy.extensions.filters."
	)
	listener := `{"name":"l","stat_prefix":"s","api_listener":{"api_listener":{"@type":"` + url + `network.http_connection_manager.v3.HttpConnectionManager",
		"codec_type":"HTTP2","http_filters":[{"name":"r","disabled":true,"typed_config":{"@type":"` + url + `http.router.v3.Router","suppress_envoy_headers":true}}],
		"route_config":{"name":"c","validate_clusters":true,"virtual_hosts":[{"name":"h","domains":["*"],"include_request_attempt_count":true,"routes":[
			{"match":{"prefix":"","grpc":{}},"route":{"cluster":"a","timeout":"1s"}},
			{"match":{"prefix":"/b","headers":[{"name":"x","present_match":true,"treat_missing_header_as_empty":true}]},"route":{"timeout":"1s","retry_policy":{},
				"weighted_clusters":{"total_weight":1,"clusters":[{"name":"a","weight":1,"host_rewrite_literal":"h"}]}}}]}]}}}}`
	for _, c := range []struct {
		name   string
		decode func(decode.Options) ([]decode.Problem, error)
		want   []string
	}{
		{
			"an assignment", warningsOf(resource.TypeAssignment, `{"cluster_name":"orders","endpoints":[{"locality":{"zone":"a"},"load_balancing_weight":1,"proximity":1,"metadata":{},"lb_endpoints":[
				{"metadata":{"typed_filter_metadata":{"x":{}}},"endpoint":{"health_check_config":{"port_value":1},"address":{"socket_address":{"address":"h","port_value":1,"protocol":"UDP"}}}},
				{"endpoint":{"health_check_config":{"port_value":1},"additional_addresses":[{"address":{"socket_address":{"address":"j","port_value":1,"protocol":"UDP"}}}],"address":{"socket_address":{"address":"i","port_value":1}}}}]}]}`),
			[]string{
				"endpoints[0].metadata: is not applied: only the metadata of Clusters and endpoints is read",
				"endpoints[0].proximity: is not applied: localities are chosen by priority and weight",
				"endpoints[0].lb_endpoints[0].endpoint.health_check_config: is not applied: lbd makes no health checks of its own (and 1 more like it)",
				"endpoints[0].lb_endpoints[0].endpoint.address.socket_address.protocol: is not applied: connections are TCP (and 1 more like it)",
				"endpoints[0].lb_endpoints[0].metadata.typed_filter_metadata: is not applied: only filter_metadata is read",
			},
		},
		{
			"TLS", warningsOf(resource.TypeCluster, eds(`"transport_socket":{"name":"envoy.transport_sockets.tls","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
				"allow_renegotiation":true,"common_tls_context":{"alpn_protocols":["h2"],"validation_context":{"trusted_ca":{"filename":"f"},"ca_certificate_provider_instance":{"instance_name":"roots"}}}}}`)),
			[]string{
				tls + ".allow_renegotiation: is not applied",
				tls + ".common_tls_context.alpn_protocols: is not applied: ALPN offers h2 and http/1.1",
				tls + ".common_tls_context.validation_context.trusted_ca: is not applied: the roots are those of ca_certificate_provider_instance or system_root_certs",
			},
		},
		{
			"a config source", warningsOf(resource.TypeCluster, `{"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"self":{"transport_api_version":"V2"},"resource_api_version":"V3","initial_fetch_timeout":"1s"}}}`),
			[]string{
				"eds_cluster_config.eds_config.self.transport_api_version: is not applied: it is V2, and resources are V3",
				"eds_cluster_config.eds_config.initial_fetch_timeout: is not applied: it is 15 s, as in gRPC",
			},
		},
		{
			"a listener", warningsOf(resource.TypeListener, listener),
			[]string{
				in + ".codec_type: is not applied",
				in + ".http_filters[0].disabled: is not applied: picks pass no HTTP filters",
				in + ".http_filters[0].typed_config.suppress_envoy_headers: is not applied",
				in + ".route_config.validate_clusters: is not applied",
				host + ".include_request_attempt_count: is not applied",
				host + ".routes[0].match.grpc: is not applied",
				host + ".routes[0].route.timeout: is not applied: lbd sends no requests (and 1 more like it)",
				host + ".routes[1].match.headers[0].treat_missing_header_as_empty: is not applied: an absent header meets no condition but present_match",
				host + ".routes[1].route.retry_policy: is not applied: callers of the pick API retry",
				host + ".routes[1].route.weighted_clusters.total_weight: is not applied: it is the sum of the weights",
				host + ".routes[1].route.weighted_clusters.clusters[0].host_rewrite_literal: is not applied",
				"stat_prefix: is not applied",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
				warnings, err := c.decode(decode.Options{Origin: origin, Certificates: func(string) (roots, identity, ok bool) { return true, true, true }})
				noError(t, err)
				got := slices.DeleteFunc(lines(warnings), func(l string) bool { return !strings.Contains(l, notApplied) })
				want := c.want
				if origin == decode.FromServer {
					want = nil
				}
				if !sameSet(got, want) {
					t.Errorf("origin %d: warnings\n%s\nwant\n%s", origin, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
}

// warningsOf returns a function that decodes the body and returns the warnings.
func warningsOf(kind resource.Type, body string) func(decode.Options) ([]decode.Problem, error) {
	return func(o decode.Options) ([]decode.Problem, error) {
		d, err := decode.One(kind, []byte(body), o)
		if err != nil {
			return nil, err
		}
		return d.Warnings, nil
	}
}

// Many fields of one kind are one warning, alone and in a bundle.
func TestFieldsThatAreNotAppliedAreCounted(t *testing.T) {
	endpoints := make([]string, 10_000)
	for i := range endpoints {
		endpoints[i] = fmt.Sprintf(`{"endpoint":{"health_check_config":{"port_value":1},"address":{"socket_address":{"address":"h","port_value":%d}}}}`, i+1)
	}
	body := localities(locality("a", 0, 1, endpoints...))
	const want = "endpoints[0].lb_endpoints[0].endpoint.health_check_config: is not applied: lbd makes no health checks of its own (and 9999 more like it)"
	d, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{})
	if err != nil || !reflect.DeepEqual(lines(d.Warnings), []string{want}) {
		t.Errorf("%v: warnings %q", err, lines(d.Warnings))
	}
	b, err := decode.All([]byte(bundle(typed(assignmentType, body))), decode.Options{})
	if err != nil || !reflect.DeepEqual(lines(b.Warnings), []string{"resources[0]." + want}) {
		t.Errorf("%v: warnings of the bundle %q", err, lines(b.Warnings))
	}
}

// Priorities that are written for Envoy's defaults are warned of once; those that say
// so themselves are warned of for what they say.
func TestPrioritiesWithEnvoysDefaults(t *testing.T) {
	two := localities(locality("a", 0, 1, endpoint("h", 80)), locality("b", 1, 1, endpoint("i", 80)), locality("c", 1, 1, endpoint("j", 80)))
	explicit := strings.Replace(two, `"endpoints"`, `"policy":{"overprovisioning_factor":100},"endpoints"`, 1)
	for body, want := range map[string][]string{
		localities(locality("a", 0, 1, endpoint("h", 80))): nil,
		two:      {envoyDefaults},
		explicit: {"policy.overprovisioning_factor: is not applied: a priority is used until it fails as a whole"},
	} {
		d, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{})
		if err != nil || !reflect.DeepEqual(lines(d.Warnings), want) {
			t.Errorf("%v: warnings %q, want %q", err, lines(d.Warnings), want)
		}
		d, err = decode.One(resource.TypeAssignment, []byte(body), decode.Options{Origin: decode.FromServer})
		if err != nil || len(d.Warnings) != 0 {
			t.Errorf("from a server: %v: warnings %q", err, lines(d.Warnings))
		}
	}
}

// A resource of a management server has the fields that are not applied beside its
// value; one that is stored has none.
// A Resource around a resource has fields that gRPC ignores.
func TestFieldsOfAWrapper(t *testing.T) {
	d := accept(t, resource.TypeCluster, eds(), decode.Options{})
	inner := &anypb.Any{TypeUrl: resource.TypeCluster.URL(), Value: d.Raw}
	wrapper, err := anypb.New(&discoveryv3.Resource{Name: "orders", Ttl: durationpb.New(time.Second), Resource: inner})
	noError(t, err)
	it, err := decode.Resource(resource.TypeCluster, wrapper, decode.Options{Origin: decode.FromServer})
	if err != nil || len(it.Unapplied) != 1 || it.Unapplied[0].Field != "envoy.service.discovery.v3.Resource.ttl" {
		t.Errorf("%v, unapplied: %+v", err, it.Unapplied)
	}
	body, err := proto.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{wrapper}})
	noError(t, err)
	one, err := decode.One(resource.TypeCluster, body, decode.Options{Format: decode.FormatProtobuf})
	noError(t, err)
	all, err := decode.All(body, decode.Options{Format: decode.FormatProtobuf})
	noError(t, err)
	for _, warnings := range [][]decode.Problem{one.Warnings, all.Warnings} {
		if len(warnings) != 1 || !strings.HasSuffix(warnings[0].String(), "ttl: is not applied: a resource stays until it is replaced or removed") {
			t.Errorf("warnings %v", warnings)
		}
	}
}

func TestUnappliedFieldsOfAServer(t *testing.T) {
	for name, c := range map[string]struct {
		of       resource.Type
		body     string
		path     string
		field    string
		isStored bool
	}{
		"in the table": {resource.TypeCluster, eds(`"health_checks":[{}]`), "health_checks", "envoy.config.cluster.v3.Cluster.health_checks", false},
		"judged":       {resource.TypeCluster, eds(`"ring_hash_lb_config":{}`), "ring_hash_lb_config", "envoy.config.cluster.v3.Cluster.ring_hash_lb_config", false},
		"in an Any": {
			resource.TypeCluster, only(policy(weighted, `"enable_oob_load_report":true`)), inPolicy + ".enable_oob_load_report",
			"envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin.enable_oob_load_report", false,
		},
		"stored":  {resource.TypeCluster, eds(`"health_checks":[{}],"ring_hash_lb_config":{}`), "", "", true},
		"nothing": {resource.TypeCluster, eds(), "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := accept(t, resource.TypeCluster, c.body, decode.Options{})
			o := decode.Options{Origin: decode.FromServer, Stored: c.isStored}
			it, err := decode.Resource(c.of, &anypb.Any{TypeUrl: c.of.URL(), Value: d.Raw}, o)
			noError(t, err)
			switch {
			case c.field == "" && it.Unapplied == nil:
			case len(it.Unapplied) != 1 || it.Unapplied[0].Field != c.field || it.Unapplied[0].Path != c.path:
				t.Errorf("unapplied: %+v", it.Unapplied)
			}
		})
	}
}
