package decode_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// A fact is what people write in a resource called orders, and what an error says if it is rejected.
type fact struct{ body, says string }

// endpointAt is an endpoint of an assignment.
func endpointAt(address string, more ...string) string {
	return fmt.Sprintf(`{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":80}}}%s}`, address, strings.Join(more, ""))
}

func localityOf(members string, endpoints ...string) string {
	return fmt.Sprintf(`{%s"lb_endpoints":[%s]}`, members, strings.Join(endpoints, ","))
}

var assignmentFacts = []fact{
	{localityOf("", endpointAt("10.0.0.1"), endpointAt("10.0.0.2")), ""},
	{localityOf("", endpointAt("2001:db8::1"), endpointAt("orders-1.example.com")), ""},
	{localityOf(`"locality":{"region":"eu","zone":"a","sub_zone":"1"},"load_balancing_weight":3,`, endpointAt("10.0.0.1")) + "," +
		localityOf(`"locality":{"region":"eu","zone":"b"},"load_balancing_weight":1,`, endpointAt("10.0.0.2")), ""},
	{localityOf("", endpointAt("10.0.0.1", `,"health_status":"DRAINING"`), endpointAt("10.0.0.2", `,"health_status":"HEALTHY"`)), ""},
	{localityOf("", endpointAt("10.0.0.1", `,"load_balancing_weight":5`), endpointAt("10.0.0.2", `,"metadata":{"filter_metadata":{"envoy.lb":{"canary":true}}}`)), ""},
	{localityOf(`"priority":0,`, endpointAt("10.0.0.1")) + "," + localityOf(`"priority":1,`, endpointAt("10.0.0.2")), ""},
	{localityOf(`"proximity":1,"locality":{},`, endpointAt("10.0.0.1")), ""},
	{localityOf("", `{"endpoint":{"hostname":"a","address":{"socket_address":{"protocol":"TCP","address":"10.0.0.1","port_value":"80"}},"health_check_config":{"port_value":81}}}`), ""},
	{localityOf("", endpointAt("0:0:0:0:0:0:0:1"), endpointAt("LOCALHOST")), ""},
	{localityOf("", endpointAt("::1"), endpointAt("0:0:0:0:0:0:0:1")), "is [::1]:80, which endpoints[0].lb_endpoints[0] has already"},
	{localityOf("", endpointAt("10.0.0.1"), endpointAt("::ffff:10.0.0.1")), "which endpoints[0].lb_endpoints[0] has already"},
	{localityOf(`"priority":1,`, endpointAt("10.0.0.1")), "priorities must begin at 0"},
	{localityOf("", endpointAt("10.0.0.1"), endpointAt("10.0.0.1")), "which endpoints[0].lb_endpoints[0] has already"},
	{localityOf("", endpointAt("10.0.0.1")) + "," + localityOf("", endpointAt("10.0.0.2")), "join their lb_endpoints, or give each a locality"},
	{localityOf("", `{"endpoint":{"address":{"pipe":{"path":"/run/orders.sock"}}}}`), "write {socket_address"},
	{localityOf("", `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":0}}}}`), "must be from 1 to 65535"},
	{localityOf("", `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","named_port":"http"}}}}`), "write the number in port_value"},
	{localityOf("", `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":"http"}}}}`), "write a whole number from 0"},
	{localityOf("", `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port":80}}}}`), "did you mean port_value?"},
	{localityOf("", endpointAt("10.0.0.1:80")), "the port belongs in port_value"},
	{localityOf("", endpointAt("[::1]")), "has no brackets here"},
	{localityOf("", endpointAt("10.0.0.1", `,"load_balancing_weight":0`)), "must be at least 1, or absent"},
	{localityOf("", endpointAt("10.0.0.1", `,"weight":2`)), "did you mean load_balancing_weight?"},
	{localityOf("", endpointAt("10.0.0.1", `,"health_status":"UP"`)), "none of UNKNOWN, HEALTHY"},
	{localityOf(`"locality":{"zone":1},`, endpointAt("10.0.0.1")), "put it in quotes"},
	{localityOf("", `{"endpoint_name":"a"}`), "write the endpoint itself"},
	{`{"leds_cluster_locality_config":{"leds_collection_name":"a"}}`, "write lb_endpoints"},
}

var clusterFacts = []fact{
	{`"type":"EDS"`, ""},
	{`"type":"EDS","eds_cluster_config":{"eds_config":{"ads":{},"resource_api_version":"V3"},"service_name":"orders-eds"},"connect_timeout":"0.250s"`, ""},
	{`"type":"EDS","eds_cluster_config":{"eds_config":{"path_config_source":{"path":"/etc/envoy/eds.yaml"}}}`, ""},
	{`"type":"EDS","lb_policy":"RING_HASH","ring_hash_lb_config":{"minimum_ring_size":1024}`, ""},
	{`"type":"EDS","lb_policy":"LEAST_REQUEST","health_checks":[{"timeout":"1s","interval":"5s","unhealthy_threshold":2,"healthy_threshold":1,"tcp_health_check":{}}]`, ""},
	{`"type":"EDS","circuit_breakers":{"thresholds":[{"max_connections":100,"max_requests":200}]},"outlier_detection":{"consecutive_5xx":5,"interval":"10s"}`, ""},
	{`"type":"LOGICAL_DNS","load_assignment":{"endpoints":[{"lb_endpoints":[` + endpointAt("orders.example.com") + `]}]}`, ""},
	{`"cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":["a","b"]}}`, ""},
	{`"type":"EDS","typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":{"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions","explicit_http_config":{"http2_protocol_options":{}}}}`, ""},
	{`"type":"STATIC"`, "write type: EDS"},
	{`"connect_timeout":"1s"`, "write type: EDS"},
	{`"type":"STRICT_DNS","load_assignment":{"endpoints":[{"lb_endpoints":[` + endpointAt("orders.example.com") + `]}]}`, "write type: LOGICAL_DNS for a single name"},
	{`"type":"ORIGINAL_DST","lb_policy":"CLUSTER_PROVIDED"`, "supported are EDS"},
	{`"type":"EDS","lb_policy":"MAGLEV"`, "supported are ROUND_ROBIN"},
	{`"type":"EDS","lb_policy":"round_robin"`, "none of ROUND_ROBIN"},
	{`"type":"EDS","transport_socket_matches":[{"name":"tlsMode-istio"}]`, "not supported"},
	{`"type":"EDS","connect_timeout":"250ms"`, `write a duration in seconds, such as "30s"`},
	{`"type":"EDS","connect_timeout":5`, `where a duration in seconds, such as "30s"`},
	{`"type":"EDS","respect_dns_ttl":"yes"`, "write true or false"},
	{`"type":"EDS","circuit_breakers":{"thresholds":[{"max_requests":"many"}]}`, "write a whole number from 0"},
	{`"type":"EDS","hosts":[{"socket_address":{"address":"10.0.0.1","port_value":80}}]`, "did you mean load_assignment?"},
	{`"type":"EDS","tls_context":{}`, "did you mean transport_socket?"},
	{`"type":"EDS","service_name":"a"`, "did you mean eds_cluster_config.service_name?"},
	{`"type":"EDS","eds_cluster_config":{"eds_config":{"api_config_source":{"api_type":"GRPC"}}}`, "it must be ads or self"},
}

const url = "type.googleapis.com/"

var snakeName = regexp.MustCompile(`"([a-z0-9]+(_[a-z0-9]+)+)":`)

// camel returns JSON with the other names of proto fields.
func camel(body string) string {
	return snakeName.ReplaceAllStringFunc(body, func(name string) string { return text.Camel(name) })
}

// forms are the files in which people have a resource.
var forms = []struct {
	name   string
	format decode.Format
	of     func(t resource.Type, typed, bare string) string
}{
	{"JSON", decode.FormatJSON, func(_ resource.Type, _, bare string) string { return bare }},
	{"YAML", decode.FormatYAML, func(_ resource.Type, _, bare string) string { return yaml(bare) }},
	{"JSON with a type, as protojson writes it", decode.FormatJSON, func(_ resource.Type, typed, _ string) string { return camel(typed) }},
	{"the file of Envoy's file-based xDS", decode.FormatYAML, func(_ resource.Type, typed, _ string) string {
		return yaml(`{"version_info":"0","resources":[` + typed + `]}`)
	}},
	{"a delta response", decode.FormatJSON, func(_ resource.Type, typed, _ string) string {
		return `{"resources":[{"name":"orders","version":"1","ttl":"30s","resource":` + typed + `}]}`
	}},
	{"xDS v2", decode.FormatYAML, func(t resource.Type, typed, _ string) string {
		return yaml(strings.Replace(typed, t.URL(), url+"envoy.api.v2."+string(t), 1))
	}},
	{"curl /config_dump?include_eds", decode.FormatJSON, func(t resource.Type, typed, _ string) string { return dump(t, typed) }},
	{"curl /config_dump?resource=", decode.FormatJSON, func(t resource.Type, typed, _ string) string {
		return `{"configs":[{"version_info":"1",` + map[resource.Type]string{resource.TypeCluster: `"cluster"`, resource.TypeAssignment: `"endpoint_config"`}[t] + `:` + typed + `}]}`
	}},
	{"istioctl proxy-config all -o json", decode.FormatJSON, func(t resource.Type, typed, _ string) string { return camel(dump(t, typed)) }},
	{"istioctl proxy-config cluster -o json", decode.FormatJSON, func(_ resource.Type, _, bare string) string { return "[" + camel(bare) + "]" }},
	{"egctl config envoy-proxy all -o yaml", decode.FormatYAML, func(t resource.Type, typed, _ string) string {
		return yaml(`{"envoy-gateway-system":{"envoy-default-eg-1":` + camel(dump(t, typed)) + `}}`)
	}},
	{"grpcdebug xds config", decode.FormatJSON, func(t resource.Type, typed, _ string) string {
		return `{"config":[{"node":{"id":"a"},"genericXdsConfigs":[{"typeUrl":"` + t.URL() + `","name":"orders","xdsConfig":` + camel(typed) + `,"clientStatus":"ACKED"}]}]}`
	}},
}

func yaml(body string) string {
	out, err := text.ToYAML([]byte(body))
	if err != nil {
		panic(err)
	}
	return string(out)
}

func dump(t resource.Type, typed string) string {
	kind, list := "Clusters", `"dynamic_active_clusters":[{"cluster":`
	if t == resource.TypeAssignment {
		kind, list = "Endpoints", `"dynamic_endpoint_configs":[{"endpoint_config":`
	}
	return `{"configs":[{"@type":"` + url + `envoy.admin.v3.BootstrapConfigDump","bootstrap":{"node":{"id":"a"},"static_resources":{}}},
		{"@type":"` + url + `envoy.admin.v3.` + kind + `ConfigDump","version_info":"1",` + list + typed + `,"last_updated":"2026-01-01T00:00:00Z"}]},
		{"@type":"` + url + `envoy.admin.v3.ListenersConfigDump","dynamic_listeners":[{"name":"0.0.0.0_80"}]}]}`
}

// TestRealForms reads each fact in each form: it is accepted, or rejected with what to write.
func TestRealForms(t *testing.T) {
	files, accepted := 0, 0
	check := func(of resource.Type, members, says string) {
		bare := "{" + members + "}"
		typed := `{"@type":"` + of.URL() + `",` + members + "}"
		for _, f := range forms {
			files++
			body := f.of(of, typed, bare)
			b, err := decode.All([]byte(body), decode.Options{Format: f.format, Bare: true, Name: "orders", Policies: grpcs})
			switch {
			case says == "" && err == nil && len(b.Items) == 1 && b.Items[0].Key == resource.Key{Type: of, Name: "orders"}:
				accepted++
			case says == "" || err == nil || !strings.Contains(err.Error(), says) && !strings.Contains(err.Error(), text.Camel(says)):
				t.Errorf("%s: %v, want %q:\n%s", f.name, err, says, body)
			}
		}
	}
	for _, f := range assignmentFacts {
		check(resource.TypeAssignment, `"cluster_name":"orders","endpoints":[`+f.body+"]", f.says)
	}
	for _, f := range clusterFacts {
		check(resource.TypeCluster, `"name":"orders",`+f.body, f.says)
	}
	t.Logf("%d files: %d accepted, %d rejected with what to write", files, accepted, files-accepted)
	if files < 300 {
		t.Errorf("%d files", files)
	}
}

// What has other resources than its own, or none, says what it is.
func TestForms(t *testing.T) {
	static := `{"name":"pay","type":"STATIC","load_assignment":{"cluster_name":"x","endpoints":[` + localityOf("", endpointAt("10.0.0.1")) + `]}}`
	for name, c := range map[string]struct{ body, says string }{
		"a bootstrap":                {`{"admin":{},"static_resources":{"listeners":[{"name":"a"}],"clusters":[` + static + `]}}`, "Cluster/pay=EDS ClusterLoadAssignment/pay=10.0.0.1:80"},
		"a static cluster of a dump": {camel(`{"configs":[{"static_clusters":[{"cluster":` + strings.Replace(static, "{", `{"@type":"`+resource.TypeCluster.URL()+`",`, 1) + `}]}]}`), "Cluster/pay=EDS ClusterLoadAssignment/pay=10.0.0.1:80"},
		"a static cluster, and its endpoints": {
			`{"configs":[{"static_clusters":[{"cluster":` + static + `}]},{"static_endpoint_configs":[{"endpoint_config":{"cluster_name":"pay","endpoints":[]}}]}]}`,
			"Cluster/pay=EDS ClusterLoadAssignment/pay=10.0.0.1:80",
		},
		"white space before a list":    {"\n [" + static + "]", "Cluster/pay=EDS ClusterLoadAssignment/pay=10.0.0.1:80"},
		"white space before a dump":    {"\n" + `{"configs":[{"bootstrap":{}}]}`, "has no resources at configs.static_clusters.cluster"},
		"a field in both spellings":    {`[` + strings.Replace(static, "}]}}", "}]},\"loadAssignment\":{\"endpoints\":[]}}", 1) + `,{"name":"b","type":"EDS"}]`, "Cluster/pay=EDS ClusterLoadAssignment/pay=10.0.0.1:80 Cluster/b=EDS"},
		"a resource with other fields": {`{"@type":"` + resource.TypeCluster.URL() + `","name":"a","type":"EDS","targets":[]}`, "unknown field"},
		"clusters of istioctl":         {"[" + static + "]", "Cluster/pay=EDS ClusterLoadAssignment/pay=10.0.0.1:80"},
		"a static cluster by itself":   {static, "write type: EDS"},
		"a dump without resources":     {`{"configs":[{"bootstrap":{}}]}`, "has no resources at configs.static_clusters.cluster"},
		"a dump of two proxies":        {`{"a":{"b":` + dump(resource.TypeCluster, `{"@type":"`+resource.TypeCluster.URL()+`","name":"a","type":"EDS"}`) + `,"c":` + dump(resource.TypeCluster, `{"@type":"`+resource.TypeCluster.URL()+`","name":"a","type":"EDS"}`) + `}}`, `as that of ["a"]["b"].configs[1]`},
		"a bootstrap with ADS":         {`{"node":{"id":"a"},"dynamic_resources":{"ads_config":{}}}`, "write a bootstrap of gRPC for --bootstrap"},
		"a bootstrap of gRPC":          {`{"xds_servers":[{"server_uri":"a"}]}`, "give it to lbd as --bootstrap"},
		"curl /clusters?format=json":   {`{"cluster_statuses":[{"name":"a"}]}`, "/config_dump?include_eds"},
		"istioctl proxy-config eds":    {`[{"name":"a","addedViaApi":true,"hostStatuses":[{}],"circuitBreakers":{}}]`, "istioctl proxy-config all -o json"},
		"kubectl get endpointslice":    {`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","endpoints":[],"metadata":{"name":"a"}}`, "an object of Kubernetes: write"},
		"Prometheus' targets":          {`[{"targets":["10.0.0.1:80"],"labels":{}}]`, "write a list of endpoints: ADDRESS:PORT"},
		"Consul's service":             {`[{"Node":{},"Service":{},"Checks":[]}]`, "write a list of endpoints: ADDRESS:PORT"},
		"an object that is nothing":    {`{"a":{"b":{"c":{}}}}`, "add @type"},
		"a list of objects of nothing": {`[{"a":1}]`, "add @type"},
		"a resource in a resource":     {`{"resources":[{"resource":{"resource":{"@type":"` + resource.TypeCluster.URL() + `","name":"a","type":"EDS"}}}]}`, "is a Resource within a Resource"},
		"a list of lists":              {`[{"name":"a","type":"EDS"},[]]`, "where an object is wanted"},
	} {
		b, err := decode.All([]byte(c.body), decode.Options{Bare: true, Policies: grpcs})
		var got []string
		for i := 0; err == nil && i < len(b.Items); i++ {
			if it := b.Items[i]; it.Cluster != nil {
				got = append(got, it.Key.String()+"="+fmt.Sprint(it.Cluster.Type))
			} else {
				got = append(got, it.Key.String()+"="+it.Assignment.Localities[0].Endpoints[0].Addresses[0])
			}
		}
		if err == nil && strings.Join(got, " ") != c.says || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, %v, want %q", name, got, err, c.says)
		}
	}
	dumped := dump(resource.TypeAssignment, "{}")
	if _, err := decode.One(resource.TypeAssignment, []byte(dumped), decode.Options{Name: "a"}); err == nil || !strings.Contains(err.Error(), "a config dump of Envoy: push it as a snapshot") {
		t.Errorf("a dump as the endpoints of a cluster: %v", err)
	}
}

// What Envoy's file-based EDS takes and lbd rejects is in docs/resource-files.md.
func TestFilesForEnvoy(t *testing.T) {
	pipe := `{"endpoint":{"address":{%s}}}`
	more := strings.TrimSuffix(strings.Repeat(`{"address":{"socket_address":{"address":"10.0.1.%d","port_value":80}}},`, 17), ",")
	numbers := make([]any, 17)
	for i := range numbers {
		numbers[i] = i
	}
	const zoned = `"locality":{"zone":"%s"},`
	for name, c := range map[string]struct{ endpoints, says string }{
		"an address twice":              {localityOf("", endpointAt("10.0.0.1"), endpointAt("10.0.0.1")), "has already"},
		"an address in two localities":  {localityOf("", endpointAt("10.0.0.1")) + "," + localityOf(fmt.Sprintf(zoned, "a"), endpointAt("10.0.0.1")), "has already"},
		"an address in two spellings":   {localityOf("", endpointAt("::1"), endpointAt("0::1")), "has already"},
		"a locality twice":              {localityOf(fmt.Sprintf(zoned, "a"), endpointAt("10.0.0.1")) + "," + localityOf(fmt.Sprintf(zoned, "a"), endpointAt("10.0.0.2")), "is in priority 0 twice"},
		"no locality twice":             {localityOf("", endpointAt("10.0.0.1")) + "," + localityOf("", endpointAt("10.0.0.2")), "join their lb_endpoints"},
		"a gap":                         {localityOf("", endpointAt("10.0.0.1")) + "," + localityOf(`"priority":2,`, endpointAt("10.0.0.2")), "begin at 0 and leave none out"},
		"no priority 0":                 {localityOf(`"priority":1,`, endpointAt("10.0.0.2")), "begin at 0 and leave none out"},
		"a pipe":                        {localityOf("", fmt.Sprintf(pipe, `"pipe":{"path":"/run/a"}`)), "write {socket_address"},
		"an internal address":           {localityOf("", fmt.Sprintf(pipe, `"envoy_internal_address":{"server_listener_name":"a"}`)), "write {socket_address"},
		"port 0":                        {localityOf("", fmt.Sprintf(pipe, `"socket_address":{"address":"10.0.0.1","port_value":0}`)), "must be from 1 to 65535"},
		"an unknown field":              {localityOf("", endpointAt("10.0.0.1", `,"wieght":1`)), "unknown field"},
		"load_balancer_endpoints":       {`{"load_balancer_endpoints":{"lb_endpoints":[` + endpointAt("10.0.0.1") + `]}}`, "write lb_endpoints"},
		"an unknown health":             {localityOf("", endpointAt("10.0.0.1", `,"health_status":9`)), "is no health status"},
		"large weights of endpoints":    {localityOf("", endpointAt("10.0.0.1", `,"load_balancing_weight":4294967295`), endpointAt("10.0.0.2", `,"load_balancing_weight":1`)), "exceeds 4294967295"},
		"large weights of localities":   {localityOf(`"load_balancing_weight":4294967295,`, endpointAt("10.0.0.1")) + "," + localityOf(`"load_balancing_weight":1,`+fmt.Sprintf(zoned, "a"), endpointAt("10.0.0.2")), "exceed 4294967295"},
		"a zone that cannot be printed": {localityOf(fmt.Sprintf(zoned, `\u0001`), endpointAt("10.0.0.1")), "cannot be printed"},
		"a long hostname":               {localityOf("", `{"endpoint":{"hostname":"`+strings.Repeat("h", 256)+`","address":{"socket_address":{"address":"10.0.0.1","port_value":80}}}}`), "of at most 255"},
		"17 additional addresses":       {localityOf("", `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":80}},"additional_addresses":[`+fmt.Sprintf(more, numbers...)+`]}}`), "of at most 16"},
		"a number for a text":           {localityOf(`"locality":{"zone":1.10},`, endpointAt("10.0.0.1")), "1.10 is no string: put it in quotes"},
		"a port of 010":                 {localityOf("", fmt.Sprintf(pipe, `"socket_address":{"address":"10.0.0.1","port_value":010}`)), "begins with 0"},
	} {
		file := `resources: [{"@type": ` + resource.TypeAssignment.URL() + `, cluster_name: orders, endpoints: [` + c.endpoints + `]}]`
		if _, err := decode.All([]byte(file), decode.Options{Format: decode.FormatYAML, Bare: true, Name: "orders"}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}
