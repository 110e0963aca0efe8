package decode_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// eds is the JSON of an EDS cluster with further fields.
func eds(more ...string) string {
	fields := append([]string{`"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}}`}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

// policies is the JSON of load_balancing_policy's list, with these typed_configs.
func policies(configs ...string) string {
	for i, c := range configs {
		configs[i] = `{"typed_extension_config":{"name":"x","typed_config":` + c + `}}`
	}
	return `{"policies":[` + strings.Join(configs, ",") + `]}`
}

// policy is the JSON of an Any with a load balancing policy.
func policy(name string, more ...string) string {
	fields := append([]string{`"@type":"type.googleapis.com/envoy.extensions.load_balancing_policies.` + name + `"`}, more...)
	return "{" + strings.Join(fields, ",") + "}"
}

func choose(list string) string { return `"load_balancing_policy":` + list }

const (
	roundRobin = "round_robin.v3.RoundRobin"
	wrr        = "wrr_locality.v3.WrrLocality"
	ringHash   = "ring_hash.v3.RingHash"
	maglev     = "maglev.v3.Maglev"
	supports   = "supported are RoundRobin, ClientSideWeightedRoundRobin, LeastRequest, RingHash and PickFirst of " +
		"envoy.extensions.load_balancing_policies, alone or as the endpoint_picking_policy of its WrrLocality, " +
		"and a TypedStruct of a policy that is there by gRPC's name"
	lbPolicies = "supported are ROUND_ROBIN, LEAST_REQUEST and RING_HASH"
	types      = "supported are EDS, LOGICAL_DNS, and the cluster_type envoy.clusters.aggregate"
	push       = "write type: EDS, and give the endpoints as a ClusterLoadAssignment: pushed under the cluster's endpoints, or from a management server"
	from       = "the endpoints are those that are pushed, in lbd's own files, or from a management server"
)

// byHand marks a warning that a management server's resource does not get.
const byHand = "by hand: "

func TestClusters(t *testing.T) {
	type change func(*resource.Cluster)
	as := func(changes ...change) *resource.Cluster {
		c := resource.DefaultCluster("orders")
		for _, apply := range changes {
			apply(c)
		}
		return c
	}
	limit := func(n uint32) change {
		return func(c *resource.Cluster) { c.MaxRequests, c.MaxRequestsConfigured = n, true }
	}
	connect := func(m resource.ConnectMode) change { return func(c *resource.Cluster) { c.Connect = m } }
	lrs := func(c *resource.Cluster) { c.LRSToSelf = true }
	metrics := func(m resource.LoadMetrics) change { return func(c *resource.Cluster) { c.LoadMetrics = &m } }
	plain := func(c *resource.Cluster) { c.Policy = resource.Policy{Name: resource.PolicyRoundRobin} }
	for _, c := range []struct {
		name     string
		body     string
		want     *resource.Cluster
		warnings []string // of both origins, or only byHand
	}{
		{"no more than it takes", eds(), as(), nil},
		{"self", `{"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"self":{}}}}`, as(), nil},
		{
			"service name", `{"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}},"service_name":"s"}}`,
			as(func(c *resource.Cluster) { c.EDSServiceName = "s" }), nil,
		},
		{"max_requests", eds(`"circuit_breakers":{"thresholds":[{"max_requests":7}]}`), as(limit(7)), nil},
		{"max_requests 0", eds(`"circuit_breakers":{"thresholds":[{"max_requests":0}]}`), as(limit(0)), nil},
		{"max_requests as the default", eds(`"circuit_breakers":{"thresholds":[{"max_requests":1024}]}`), as(limit(1024)), nil},
		{
			"max_requests of the first default priority",
			eds(`"circuit_breakers":{"thresholds":[{"priority":"HIGH","max_requests":1},{"max_requests":2},{"max_requests":3}]}`), as(limit(2)),
			[]string{
				byHand + "circuit_breakers.thresholds[0]: is not applied: the priority is HIGH, and picks have priority DEFAULT",
				byHand + "circuit_breakers.thresholds[2]: is not applied: the first threshold of priority DEFAULT is",
			},
		},
		{
			"the first default priority has none", eds(`"circuit_breakers":{"thresholds":[{},{"max_requests":3}]}`), as(),
			[]string{byHand + "circuit_breakers.thresholds[1]: is not applied: the first threshold of priority DEFAULT is"},
		},
		{
			"high priority only", eds(`"circuit_breakers":{"thresholds":[{"priority":"HIGH","max_requests":1}]}`), as(),
			[]string{byHand + "circuit_breakers.thresholds[0]: is not applied: the priority is HIGH, and picks have priority DEFAULT"},
		},
		{
			"what Envoy limits besides", eds(`"circuit_breakers":{"thresholds":[{"max_connections":5},{"max_connections":6}],"per_host_thresholds":[{"max_connections":5}]}`), as(),
			[]string{
				byHand + "circuit_breakers.per_host_thresholds: is not applied: the limit is the cluster's",
				byHand + "circuit_breakers.thresholds[0].max_connections: is not applied: the limit is max_requests (and 1 more like it)",
				byHand + "circuit_breakers.thresholds[1]: is not applied: the first threshold of priority DEFAULT is",
			},
		},
		{"lrs to self", eds(`"lrs_server":{"self":{}}`), as(lrs), nil},
		{
			"metrics in load reports", eds(`"lrs_report_endpoint_metrics":["cpu_utilization","named_metrics.b","named_metrics.a","named_metrics.b","named_metrics.","mem_utilization"]`),
			as(metrics(resource.LoadMetrics{CPUUtilization: true, MemUtilization: true, Named: []string{"a", "b"}})),
			[]string{`lrs_report_endpoint_metrics: has "named_metrics.", which is not applied: known are cpu_utilization, mem_utilization, application_utilization, named_metrics.* and named_metrics.NAME`},
		},
		{
			"all named metrics are these too", eds(`"lrs_report_endpoint_metrics":["named_metrics.a","named_metrics.*","named_metrics.b","application_utilization"]`),
			as(metrics(resource.LoadMetrics{ApplicationUtilization: true, AllNamed: true})), nil,
		},
		{
			"no metric that is known", eds(`"lrs_report_endpoint_metrics":["cpu"]`), as(),
			[]string{`lrs_report_endpoint_metrics: has "cpu", which is not applied: known are cpu_utilization, mem_utilization, application_utilization, named_metrics.* and named_metrics.NAME`},
		},
		{"max_lease_share", eds(`"metadata":{"filter_metadata":{"lbd":{"max_lease_share":0.25}}}`), as(func(c *resource.Cluster) { c.MaxLeaseShare = 0.25 }), nil},
		{"max_backoff", eds(`"metadata":{"filter_metadata":{"lbd":{"max_backoff":"1m30s"}}}`), as(func(c *resource.Cluster) { c.MaxBackoff = 90 * time.Second }), nil},
		{"limit_scope daemon", eds(`"metadata":{"filter_metadata":{"lbd":{"limit_scope":"daemon"}}}`), as(), nil},
		{
			"limit_scope fleet, without a shared store", eds(`"metadata":{"filter_metadata":{"lbd":{"limit_scope":"fleet"}}}`),
			as(func(c *resource.Cluster) { c.FleetLimit = true }),
			[]string{`metadata.filter_metadata["lbd"].limit_scope: applies to this daemon only: it shares no store with others`},
		},
		{"connect tcp", eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"tcp"}}}`), as(connect(resource.ConnectTCP)), nil},
		{"connect tcp_hold", eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"tcp_hold"}}}`), as(connect(resource.ConnectTCPHold)), nil},
		{"connect tls", eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"tls"}}}`), as(connect(resource.ConnectTLS)), nil},
		{"connect none", eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"none"},"other":{"connect":7}}}`), as(connect(resource.ConnectNone)), nil},
		{
			"a word that lbd's metadata does not have", eds(`"metadata":{"filter_metadata":{"lbd":{"conect":"none"}}}`), as(),
			[]string{`metadata.filter_metadata["lbd"].conect: has no effect: known are connect, limit_scope, max_backoff and max_lease_share`},
		},
		{"round_robin", eds(choose(policies(policy(roundRobin)))), as(plain), nil},
		{"wrr_locality", eds(choose(policies(policy(wrr, `"endpoint_picking_policy":`+policies(policy(roundRobin)))))), as(), nil},
		{
			"the first that is supported", eds(choose(policies(policy(maglev), policy(roundRobin), policy(wrr)))), as(plain),
			[]string{"load_balancing_policy: Maglev: not supported, and skipped"},
		},
		{
			"by gRPC's name", eds(choose(policies(
				`{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"type.googleapis.com/acme","value":{}}`,
				`{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"type.googleapis.com/round_robin","value":{}}`))), as(plain),
			[]string{`load_balancing_policy: TypedStruct "acme": not supported, and skipped`},
		},
		{
			"by gRPC's name, as older servers write it", eds(choose(policies(
				`{"@type":"type.googleapis.com/udpa.type.v1.TypedStruct","type_url":"round_robin","value":{}}`))), as(plain), nil,
		},
		{
			"what is not applied", eds(`"health_checks":[{}]`), as(),
			[]string{
				byHand + "health_checks: is not applied: health is what EDS says, and whether an endpoint can be connected to",
			},
		},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				d := accept(t, resource.TypeCluster, c.body, decode.Options{Origin: origin, Policies: grpcs})
				if !reflect.DeepEqual(d.Cluster, c.want) {
					t.Errorf("cluster %+v, want %+v", d.Cluster, c.want)
				}
				var want []string
				for _, w := range c.warnings {
					if of, ok := strings.CutPrefix(w, byHand); !ok || origin == decode.ByHand {
						want = append(want, of)
					}
				}
				expect(t, "warnings", lines(d.Warnings), want)
			})
		}
	}
}

func TestRulesOfClusters(t *testing.T) {
	both := []decode.Origin{decode.ByHand, decode.FromServer}
	hand, server := both[:1], both[1:]
	typed := func(kind string) string { return `{"name":"orders","type":"` + kind + `"}` }
	source := func(config string) string {
		return `{"name":"orders","type":"EDS","eds_cluster_config":` + config + `}`
	}
	for _, c := range []struct {
		name    string
		origins []decode.Origin
		body    string
		want    []string
	}{
		{"static", both, typed("STATIC"), []string{"type: STATIC is not supported: " + push}},
		{"strict dns", both, typed("STRICT_DNS"), []string{"type: STRICT_DNS is not supported: write type: LOGICAL_DNS for a single name, or type: EDS, and give the endpoints as a ClusterLoadAssignment"}},
		{"original destination", both, typed("ORIGINAL_DST"), []string{"type: ORIGINAL_DST is not supported: " + types}},
		{"unknown type", both, `{"name":"orders","type":77}`, []string{"type: 77 is not supported: " + types}},
		{"no type", both, `{"name":"orders"}`, []string{"type: is absent, which means STATIC, and that is not supported: " + push}},
		{
			"another cluster_type", both, `{"name":"orders","cluster_type":{"name":"envoy.cluster.dns"}}`,
			[]string{`cluster_type.name: "envoy.cluster.dns" is not supported: ` + types},
		},
		{"no eds_config", server, source(`{}`), []string{"eds_cluster_config.eds_config: is absent: it must be ads or self"}},
		{"no eds_cluster_config", server, typed("EDS"), []string{"eds_cluster_config.eds_config: is absent: it must be ads or self"}},
		{"eds from a file", server, source(`{"eds_config":{"path_config_source":{"path":"x"}}}`), []string{"eds_cluster_config.eds_config: is path_config_source: it must be ads or self"}},
		{"eds from a path", server, source(`{"eds_config":{"path":"x"}}`), []string{"eds_cluster_config.eds_config: is path: it must be ads or self"}},
		{"eds from another server", both, source(`{"eds_config":{"api_config_source":{}}}`), []string{"eds_cluster_config.eds_config: is api_config_source: it must be ads or self"}},
		{
			"a service name that is none", hand, source(`{"eds_config":{"ads":{}},"service_name":"a\nb"}`),
			[]string{"eds_cluster_config.service_name: holds the character U+000A, which cannot be printed"},
		},
		{"maglev", both, eds(`"lb_policy":"MAGLEV"`), []string{"lb_policy: MAGLEV is not supported: " + lbPolicies}},
		{"an empty list of policies", both, eds(choose(`{}`)), []string{"load_balancing_policy: holds no policy: " + supports}},
		{"policies that are not supported", both, eds(choose(policies(policy(maglev), policy("random.v3.Random")))), []string{"load_balancing_policy: holds no supported policy, only Maglev, Random: " + supports}},
		{
			"wrr_locality without child", both, eds(choose(policies(policy(wrr)))),
			[]string{"load_balancing_policy.policies[0].typed_extension_config.typed_config.endpoint_picking_policy: holds no policy: " + supports},
		},
		{
			"wrr_locality with a child that is not supported", both, eds(choose(policies(policy(wrr, `"endpoint_picking_policy":`+policies(policy(maglev))), policy(roundRobin)))),
			[]string{"load_balancing_policy.policies[0].typed_extension_config.typed_config.endpoint_picking_policy: holds no supported policy, only Maglev: " + supports},
		},
		{"lb_policy beside load_balancing_policy", server, eds(`"lb_policy":"MAGLEV"`, choose(policies(policy(roundRobin)))), []string{"lb_policy: MAGLEV is not supported: " + lbPolicies}},
		{
			"ring hash beside load_balancing_policy", server, eds(`"lb_policy":"RING_HASH","ring_hash_lb_config":{"hash_function":"MURMUR_HASH_2"}`, choose(policies(policy(roundRobin)))),
			[]string{"ring_hash_lb_config.hash_function: MURMUR_HASH_2 is not supported: supported is XX_HASH"},
		},
		{"lrs elsewhere", both, eds(`"lrs_server":{"ads":{}}`), []string{"lrs_server: is ads: it must be self"}},
		{"lrs nowhere", both, eds(`"lrs_server":{}`), []string{"lrs_server: is absent: it must be self"}},
		{
			"unknown connect mode", both, eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"udp"}}}`),
			[]string{`metadata.filter_metadata["lbd"].connect: is "udp": it must be one of ["tcp" "tcp_hold" "tls" "none"]`},
		},
		{
			"empty connect mode", both, eds(`"metadata":{"filter_metadata":{"lbd":{"connect":""}}}`),
			[]string{`metadata.filter_metadata["lbd"].connect: is "": it must be one of ["tcp" "tcp_hold" "tls" "none"]`},
		},
		{
			"a connect mode that is no text", both, eds(`"metadata":{"filter_metadata":{"lbd":{"connect":{"a":[1]}}}}`),
			[]string{`metadata.filter_metadata["lbd"].connect: is {"a":[1]}: it must be one of ["tcp" "tcp_hold" "tls" "none"]`},
		},
		{
			"max_backoff too short", both, eds(`"metadata":{"filter_metadata":{"lbd":{"max_backoff":"999ms"}}}`),
			[]string{`metadata.filter_metadata["lbd"].max_backoff: must be a duration of 1s to 2m, such as "10s"`},
		},
		{
			"max_backoff that is no text", both, eds(`"metadata":{"filter_metadata":{"lbd":{"max_backoff":10}}}`),
			[]string{`metadata.filter_metadata["lbd"].max_backoff: must be a duration of 1s to 2m, such as "10s"`},
		},
		{"socket matches", both, eds(`"transport_socket_matches":[{"name":"x"}]`), []string{"transport_socket_matches: is not supported"}},
		{
			"outlier detection", both, eds(`"outlier_detection":{"interval":"-1s","base_ejection_time":"-0.5s","max_ejection_time":"-1s",` +
				`"max_ejection_percent":101,"enforcing_success_rate":102,"failure_percentage_threshold":103,"enforcing_failure_percentage":104}`),
			[]string{
				"outlier_detection.interval: is negative",
				"outlier_detection.base_ejection_time: is negative",
				"outlier_detection.max_ejection_time: is negative",
				"outlier_detection.max_ejection_percent: is 101: it must be at most 100",
				"outlier_detection.enforcing_success_rate: is 102: it must be at most 100",
				"outlier_detection.failure_percentage_threshold: is 103: it must be at most 100",
				"outlier_detection.enforcing_failure_percentage: is 104: it must be at most 100",
			},
		},
		{
			"every rule is listed", both, `{"name":"orders","type":"STATIC","lb_policy":"MAGLEV","lrs_server":{},"transport_socket_matches":[{}]}`,
			[]string{
				"type: STATIC is not supported: " + push,
				"lb_policy: MAGLEV is not supported: " + lbPolicies,
				"lrs_server: is absent: it must be self",
				"transport_socket_matches: is not supported",
			},
		},
	} {
		for _, origin := range c.origins {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				_, err := decode.One(resource.TypeCluster, []byte(c.body), decode.Options{Origin: origin})
				expect(t, "refusals", refusals(t, err, "Cluster/orders"), c.want)
			})
		}
	}
}

func TestNewStyleNamesNeedAServiceName(t *testing.T) {
	const name = "xdstp://a/envoy.config.cluster.v3.Cluster/orders"
	for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
		o := decode.Options{Origin: origin}
		_, err := decode.One(resource.TypeCluster, []byte(`{"name":"`+name+`","type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}}}}`), o)
		want := []string{"eds_cluster_config.service_name: is absent, and a cluster whose name begins with xdstp: must have one"}
		expect(t, "refusals", refusals(t, err, "Cluster/"+name), want)
		d, err := decode.One(resource.TypeCluster, []byte(`{"name":"`+name+`","type":"EDS","eds_cluster_config":{"eds_config":{"ads":{}},"service_name":"s"}}`), o)
		if err != nil || d.Cluster.AssignmentName() != "s" {
			t.Errorf("decoded %+v, %v", d, err)
		}
	}
}

func TestClustersByHand(t *testing.T) {
	for _, c := range []struct {
		name, body string
		warnings   []string
	}{
		{"no eds_cluster_config", `{"name":"orders","type":"EDS"}`, nil},
		{"no eds_config", `{"name":"orders","type":"EDS","eds_cluster_config":{}}`, nil},
		{
			"the file of Envoy's", `{"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"path_config_source":{"path":"/etc/eds.yaml"}}}}`,
			[]string{`eds_cluster_config.eds_config.path_config_source: is not read: ` + from},
		},
		{
			"the path of older Envoy's", `{"name":"orders","type":"EDS","eds_cluster_config":{"eds_config":{"path":"/etc/eds.yaml"}}}`,
			[]string{`eds_cluster_config.eds_config.path: is not read: ` + from},
		},
		{"absent name", `{"type":"EDS"}`, []string{`note: name: is absent: taken as "orders"`}},
		{
			"lb_policy beside load_balancing_policy", eds(`"lb_policy":"MAGLEV"`, choose(policies(policy(wrr, `"endpoint_picking_policy":`+policies(policy(roundRobin)))))),
			[]string{"lb_policy: MAGLEV is not applied: load_balancing_policy counts"},
		},
		{
			"fields that lbd does not apply", eds(`"connect_timeout":"1s","load_assignment":{"cluster_name":"x"},"dns_lookup_family":"V4_ONLY"`),
			[]string{"connect_timeout: is not applied: each address has 20 s", "load_assignment: is not applied: " + from, "dns_lookup_family: is not applied: names are resolved to the addresses that the system prefers"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := accept(t, resource.TypeCluster, c.body, decode.Options{Name: "orders"})
			expect(t, "warnings", append(lines(d.Warnings), noted(d.Notes)...), c.warnings)
			if !reflect.DeepEqual(d.Cluster, resource.DefaultCluster("orders")) {
				t.Errorf("cluster %+v, want the default", d.Cluster)
			}
		})
	}
}

// nested is a Cluster whose policies nest n deep, the innermost round_robin.
func nested(t *testing.T, n int) []byte {
	t.Helper()
	carry := func(m proto.Message) *anypb.Any {
		a, err := anypb.New(m)
		noError(t, err)
		return a
	}
	innermost := carry(&roundrobinv3.RoundRobin{})
	for range n - 1 {
		innermost = carry(&wrrlocalityv3.WrrLocality{EndpointPickingPolicy: &clusterv3.LoadBalancingPolicy{
			Policies: []*clusterv3.LoadBalancingPolicy_Policy{{TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: "x", TypedConfig: innermost}}},
		}})
	}
	return withPolicy(t, innermost)
}

func TestPoliciesNestSixteenDeep(t *testing.T) {
	o := decode.Options{Origin: decode.FromServer, Format: decode.FormatProtobuf}
	d := accept(t, resource.TypeCluster, nested(t, 16), o)
	depth := 0
	for p := &d.Cluster.Policy; p != nil; p = p.Child {
		depth++
	}
	if depth != 16 {
		t.Errorf("policy of depth %d", depth)
	}
	_, err := decode.One(resource.TypeCluster, nested(t, 17), o)
	got := refusals(t, err, "Cluster/orders")
	if len(got) != 1 || !strings.HasSuffix(got[0], ": nests deeper than 16 policies") {
		t.Errorf("refusals %q", got)
	}
}
