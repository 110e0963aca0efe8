package decode_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	listenerType = "type.googleapis.com/envoy.config.listener.v3.Listener"
	routesType   = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
	secretType   = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
)

// What a refusal of another type says.
const (
	holds   = "a bundle holds Listeners, RouteConfigurations, Clusters and ClusterLoadAssignments"
	allURLs = listenerType + ", " + routesType + ", " + clusterType + ", " + assignmentType
)

// typed is the JSON of a resource in an Any.
func typed(url, body string) string {
	if body == "{}" {
		return `{"@type":"` + url + `"}`
	}
	return `{"@type":"` + url + `",` + body[1:]
}

// bundle is the JSON of a bundle.
func bundle(resources ...string) string {
	return `{"version":"7","resources":[` + strings.Join(resources, ",") + `]}`
}

// full writes problems with all that they have.
func full(problems []decode.Problem) []string {
	var l []string
	for _, p := range problems {
		l = append(l, p.Resource+" | "+p.Field+" | "+p.Reason)
	}
	return l
}

// broken returns the problems in err, which must be an InvalidError.
func broken(t *testing.T, err error) []string {
	t.Helper()
	var invalid *decode.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("err = %v, want an InvalidError", err)
	}
	return full(invalid.Problems)
}

var (
	someAssignment = localities(locality("a", 0, 1, endpoint("h", 80)))
	someBundle     = bundle(typed(clusterType, eds()), typed(assignmentType, someAssignment))
)

// binaryBundle is a protobuf DiscoveryResponse.
func binaryBundle(tb testing.TB, resources ...*anypb.Any) []byte {
	tb.Helper()
	body, err := proto.Marshal(&discoveryv3.DiscoveryResponse{VersionInfo: "7", Resources: resources})
	noError(tb, err)
	return body
}

// someBinary is someBundle in protobuf.
func someBinary(tb testing.TB) []byte {
	tb.Helper()
	c := accept(tb, resource.TypeCluster, eds(), decode.Options{})
	a := accept(tb, resource.TypeAssignment, someAssignment, decode.Options{})
	return binaryBundle(tb, &anypb.Any{TypeUrl: clusterType, Value: c.Raw}, &anypb.Any{TypeUrl: assignmentType, Value: a.Raw})
}

func TestBundlesHoldWhatTheSingleDecodersMake(t *testing.T) {
	c := accept(t, resource.TypeCluster, eds(), decode.Options{})
	a := accept(t, resource.TypeAssignment, someAssignment, decode.Options{})
	items := func(places ...string) []resource.Item {
		c.Field, a.Field = places[0], places[1]
		return []resource.Item{c.Item, a.Item}
	}
	wrapped := func(body string) string {
		return `{"@type":"` + wrapperType + `","name":"orders","version":"3","resource":` + body + `}`
	}
	inner := strings.Split(someBundle, `"resources":`)[1]
	for _, row := range []struct {
		name   string
		format decode.Format
		body   []byte
		places []string
	}{
		{"version", decode.FormatJSON, []byte(someBundle), []string{"resources[0]", "resources[1]"}},
		{"as YAML", decode.FormatYAML, []byte(someBundle), []string{"resources[0]", "resources[1]"}},
		{"a response", decode.FormatJSON, []byte(`{"nonce":"n","resources":` + inner[:len(inner)-1] + `,"versionInfo":"7"}`), []string{"resources[0]", "resources[1]"}},
		{
			"a typed response", decode.FormatJSON,
			[]byte(typed(responseType, `{"version_info":"7","resources":`+inner)),
			[]string{"resources[0]", "resources[1]"},
		},
		{"protobuf", decode.FormatProtobuf, someBinary(t), []string{"resources[0]", "resources[1]"}},
		{
			"wrapped", decode.FormatJSON, []byte(bundle(wrapped(typed(clusterType, eds())), wrapped(typed(assignmentType, someAssignment)))),
			[]string{"resources[0].resource", "resources[1].resource"},
		},
	} {
		for _, bare := range []bool{false, true} {
			b, err := decode.All(row.body, decode.Options{Format: row.format, Bare: bare})
			if err != nil {
				t.Errorf("%s: %v", row.name, err)
				continue
			}
			if b.Version != "7" || len(b.Warnings) != 0 || !reflect.DeepEqual(b.Items, items(row.places...)) {
				t.Errorf("%s: %+v", row.name, b)
			}
		}
	}
}

func TestBareResources(t *testing.T) {
	c := accept(t, resource.TypeCluster, eds(), decode.Options{})
	a := accept(t, resource.TypeAssignment, someAssignment, decode.Options{})
	camel := strings.ReplaceAll(strings.ReplaceAll(someAssignment, "cluster_name", "clusterName"), "lb_endpoints", "lbEndpoints")
	for _, row := range []struct {
		name   string
		format decode.Format
		body   []byte
		want   *decode.Decoded
		field  string
	}{
		{"an assignment in lowerCamelCase", decode.FormatJSON, []byte(camel), a, ""},
		{"a typed cluster", decode.FormatJSON, []byte(typed(clusterType, eds())), c, ""},
		{"a typed assignment", decode.FormatYAML, []byte(typed(assignmentType, someAssignment)), a, ""},
		{"a wrapped one", decode.FormatJSON, []byte(`{"@type":"` + wrapperType + `","resource":` + typed(clusterType, eds()) + `}`), c, "resource"},
	} {
		b, err := decode.All(row.body, decode.Options{Format: row.format, Bare: true})
		if err != nil || len(b.Items) != 1 {
			t.Errorf("%s: %+v, %v", row.name, b, err)
			continue
		}
		want := row.want.Item
		want.Field = row.field
		if !reflect.DeepEqual(b.Items[0], want) {
			t.Errorf("%s: %+v, want %+v", row.name, b.Items[0], want)
		}
		if b, err := decode.All(row.body, decode.Options{Format: row.format}); err == nil {
			t.Errorf("%s: taken without Bare: %+v", row.name, b)
		}
	}
}

func TestEveryProblemOfEveryResourceIsListed(t *testing.T) {
	body := bundle(
		typed(assignmentType, `{"cluster_name":"a","endpoints":[`+locality("z", 1, 1, endpoint("h", 0))+`]}`),
		typed(clusterType, `{"name":"b","type":"STATIC","foo":1}`),
		typed(assignmentType, `{"clusterName":"c","endpoints":[{"priority":"x"}]}`),
		typed(clusterType, `{"type":"EDS"}`),
		typed(secretType, `{"name":"l"}`),
		typed("type.googleapis.com/acme.Thing", `{"name":"n"}`),
		`{"name":"untyped"}`, `7`,
		typed(clusterType, eds()), typed(clusterType, eds()),
		`{"@type":"`+wrapperType+`","foo":1,"resource":`+typed(clusterType, `{"name":"w","type":"EDS","lb_policy":"BEST","bar":1}`)+`}`,
		`{"@type":"`+wrapperType+`"}`,
	)
	const unknown = "unknown field of "
	want := []string{
		"ClusterLoadAssignment/a | resources[0].endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value | is 0: it must be from 1 to 65535",
		"ClusterLoadAssignment/a | resources[0].endpoints[0].priority | is 1, and no locality with a weight has priority 0: priorities must begin at 0 and leave none out",
		"Cluster/b | resources[1].foo | " + unknown + "Cluster",
		"Cluster/b | resources[1].type | STATIC is not supported: " + push,
		`ClusterLoadAssignment/c | resources[2].endpoints[0].priority | "x" is no uint32: write a whole number from 0 to 4294967295`,
		"Cluster | resources[3].name | is empty",
		"Secret/l | resources[4].@type | is Secret, which is not supported: " + holds,
		`DiscoveryResponse | resources[5].@type | is "type.googleapis.com/acme.Thing", which is not supported: ` + holds + " (" + allURLs + ")",
		"DiscoveryResponse | resources[6].@type | is absent: it must be one of " + allURLs,
		"DiscoveryResponse | resources[7] | is 7, where an object is wanted",
		`Cluster/orders | resources[9].name | is "orders", as that of resources[8] is: each resource may be there once`,
		"DiscoveryResponse | resources[10].foo | " + unknown + "Resource",
		"Cluster/w | resources[10].resource.bar | " + unknown + "Cluster",
		`Cluster/w | resources[10].resource.lb_policy | is "BEST", which is none of ROUND_ROBIN, LEAST_REQUEST, RING_HASH, RANDOM, MAGLEV, CLUSTER_PROVIDED, LOAD_BALANCING_POLICY_CONFIG`,
		"DiscoveryResponse | resources[11].resource | is absent",
	}
	for _, f := range []decode.Format{decode.FormatJSON, decode.FormatYAML} {
		_, err := decode.All([]byte(body), decode.Options{Format: f})
		if got := broken(t, err); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n%s\nwant:\n%s", f, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestEveryProblemOfABinaryBundleIsListed(t *testing.T) {
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	name := func(s string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), s)
	}
	wrapped := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType),
		append(name(clusterType), protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), name("w"))...))
	body := binaryBundle(t,
		&anypb.Any{TypeUrl: clusterType, Value: append(name("a"), unknown...)},
		&anypb.Any{TypeUrl: assignmentType, Value: append(name("b"), 0x12, 9)},
		&anypb.Any{TypeUrl: secretType, Value: name("l")},
		&anypb.Any{TypeUrl: wrapperType, Value: wrapped},
		&anypb.Any{TypeUrl: wrapperType, Value: []byte{0xff}},
		&anypb.Any{},
	)
	_, err := decode.All(append(body, unknown...), decode.Options{Format: decode.FormatProtobuf})
	absent := "is absent, which means STATIC, and that is not supported: " + push
	want := []string{
		"Cluster/a | resources[0].type | " + absent,
		"ClusterLoadAssignment/b | resources[1].endpoints[0] | the message is cut short",
		"Secret/l | resources[2].@type | is Secret, which is not supported: " + holds,
		"Cluster/w | resources[3].resource.type | " + absent,
		"DiscoveryResponse | resources[4] | read protobuf: byte 0: the message is cut short",
		"DiscoveryResponse | resources[5].@type | is absent: it must be one of " + allURLs,
	}
	if got := broken(t, err); !reflect.DeepEqual(got, want) {
		t.Errorf("%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is no bundle must not pass for an empty one, which takes all away.
func TestBodiesThatAreNoBundle(t *testing.T) {
	name := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "orders")
	cluster := append(name, 0x10, 0x03)
	const four = "a Listener, a RouteConfiguration, a Cluster and a ClusterLoadAssignment"
	absent := `DiscoveryResponse | resources | is absent: a bundle is {"resources": [{"@type": "` + clusterType + `"}]} and the like`
	for _, c := range []struct {
		name   string
		format decode.Format
		bare   bool
		body   string
		want   string // of the one problem, or the SyntaxError
	}{
		{"an empty object", decode.FormatJSON, false, `{}`, absent},
		{"a version", decode.FormatYAML, false, `version: "1"`, absent},
		{"a cluster", decode.FormatJSON, false, eds(), absent},
		{
			"resources misspelled", decode.FormatJSON, false, `{"resurces":[],"nonce":"n","foo":1}`,
			"DiscoveryResponse | resurces | unknown field (did you mean resources?)\n" + absent,
		},
		{"a response without resources", decode.FormatJSON, false, typed(responseType, `{"nonce":"n"}`), "DiscoveryResponse | resources | is absent"},
		{
			"an empty object for a file", decode.FormatJSON, true, `{}`,
			"DiscoveryResponse |  | holds neither resources nor fields of only one of " + four + ": add @type",
		},
		{"a bare one without name", decode.FormatJSON, true, `{"endpoints":[]}`, "ClusterLoadAssignment | cluster_name | is empty"},
		{
			"a secret", decode.FormatYAML, true, `{"@type":"` + secretType + `","name":"l"}`,
			"Secret/l | @type | is Secret, which is not supported: " + holds,
		},
		{
			"a cluster in protobuf", decode.FormatProtobuf, false, string(cluster),
			"DiscoveryResponse | resources | is absent, and there are fields that no DiscoveryResponse has: is it a resource without one?",
		},
		{
			"a name in protobuf", decode.FormatProtobuf, true, string(name),
			"DiscoveryResponse |  | could be more than one of " + four + ": put it into a DiscoveryResponse, whose Any names the type",
		},
		{"two versions", decode.FormatJSON, false, `{"version":"1","version_info":"2","resources":[]}`, "DiscoveryResponse | version | is there beside version_info: write one of them"},
		{"resources twice", decode.FormatJSON, false, `{"resources":[],"resources":[]}`, "DiscoveryResponse | resources | is there twice"},
		{"a wrapper in a wrapper", decode.FormatJSON, false, bundle(`{"@type":"` + wrapperType + `","resource":{"@type":"` + wrapperType + `"}}`), "DiscoveryResponse | resources[0].resource.@type | is a Resource within a Resource"},

		{"nothing", decode.FormatJSON, false, " ", "read JSON: the body is empty"},
		{"nothing in protobuf", decode.FormatProtobuf, false, "", "read protobuf: byte 0: the body is empty"},
		{"a list", decode.FormatJSON, false, "[]", "read JSON: line 1, column 1: unexpected token [, where an object is wanted"},
		{"cut short", decode.FormatJSON, false, "{\"resources\":[\n{\"@type\":", "read JSON: line 2, column 10: resources[0].@type: the body is cut short"},
		{"no JSON", decode.FormatJSON, true, `{"name":orders}`, "read JSON: line 1, column 9: name: invalid value orders"},
		{"no YAML", decode.FormatYAML, true, "a: [", "read YAML: line 1: did not find expected node content"},
		{"resources that are no list", decode.FormatJSON, false, "{\"version\":\"1\",\n \"resources\":{}}", "read JSON: line 2, column 2: resources: unexpected an object, where a list is wanted"},
		{"a version that is no text", decode.FormatYAML, false, "version: 7\nresources: []", "read YAML: line 1, column 1: version: 7 is no string: put it in quotes"},
		{"a version_info that is no text", decode.FormatJSON, false, "{\n\"version_info\":7,\"resources\":[]}", "read JSON: line 2, column 1: version_info: 7 is no string: put it in quotes"},
		{"a bare one with a value of the wrong type", decode.FormatJSON, true, "\n{\"cluster_name\":7}", "read JSON: line 2, column 17: cluster_name: 7 is no string: put it in quotes"},
		{"a typed one with a value of the wrong type", decode.FormatJSON, true, "\n" + typed(clusterType, `{"name":7}`), fmt.Sprintf("read JSON: line 2, column %d: name: 7 is no string: put it in quotes", len(clusterType)+20)},
		{"deep", decode.FormatJSON, false, strings.Repeat("[", 101) + strings.Repeat("]", 101), "read JSON: the body nests deeper than 100"},
	} {
		b, err := decode.All([]byte(c.body), decode.Options{Format: c.format, Bare: c.bare})
		if err == nil {
			t.Errorf("%s: taken as %+v", c.name, b)
			continue
		}
		got := err.Error()
		if !strings.HasPrefix(c.want, "read ") {
			got = strings.Join(broken(t, err), "\n")
		}
		if strings.ReplaceAll(got, "\u00a0", " ") != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, got, c.want)
		}
	}
}

func TestAnEmptyBundleIsOne(t *testing.T) {
	for _, body := range []string{`{"resources":[]}`, `{"resources":null}`} {
		b, err := decode.All([]byte(body), decode.Options{})
		if err != nil || len(b.Items) != 0 || b.Version != "" {
			t.Errorf("%s: %+v, %v", body, b, err)
		}
	}
}

func TestWarningsOfBundlesNameTheResourceAndThePlace(t *testing.T) {
	b, err := decode.All([]byte(bundle(typed(clusterType, eds(`"foo":1`)), typed(assignmentType, someAssignment))+"\n"), decode.Options{Lenient: true})
	noError(t, err)
	if got, want := full(b.Warnings), []string{`Cluster/orders | resources[0].foo | unknown field of Cluster: ignored`}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var many []string
	for i := range 150 {
		many = append(many, typed(clusterType, fmt.Sprintf(`{"name":"c%d","type":"EDS","foo":1}`, i)))
	}
	b, err = decode.All([]byte(bundle(many...)), decode.Options{Lenient: true})
	if err != nil || len(b.Items) != 150 || len(b.Warnings) != 101 {
		t.Fatalf("%+v, %v", b, err)
	}
	if got := full(b.Warnings[100:]); got[0] != "DiscoveryResponse |  | and 50 more like these" {
		t.Errorf("the last: %q", got)
	}
}

func TestProblemsOfBundlesAreListedUpToAHundred(t *testing.T) {
	var endpoints []string
	for i := range 150 {
		endpoints = append(endpoints, endpoint("h", i+1, `"load_balancing_weight":0`))
	}
	one := typed(assignmentType, localities(locality("a", 0, 1, endpoints...)))
	_, err := decode.All([]byte(bundle(one, strings.Replace(one, `"orders"`, `"others"`, 1))), decode.Options{})
	if got := broken(t, err); len(got) != 101 || got[100] != "DiscoveryResponse |  | and 200 more like these" {
		t.Errorf("%d problems, the last %s", len(got), got[len(got)-1])
	}
}

// envoyFile is the file of Envoy's documentation of file-based EDS.
const envoyFile = `
version_info: "0"
resources:
- "@type": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: example_proxy_cluster
  endpoints:
  - lb_endpoints:
    - endpoint:
        address:
          socket_address:
            address: service1
            port_value: 8080
    - endpoint:
        address:
          socket_address:
            address: 10.0.0.2
            port_value: 8080
`

// envoyClusters is a file of Envoy's file-based CDS.
const envoyClusters = `
resources:
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: example_proxy_cluster
  connect_timeout: 1s
  type: EDS
  eds_cluster_config:
    service_name: example_proxy_cluster
    eds_config:
      path_config_source: {path: /etc/envoy/eds.yaml}
      resource_api_version: V3
- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster
  name: other
  type: EDS
  eds_cluster_config: {eds_config: {path: /etc/envoy/eds.yaml}}
`

func TestEnvoyFilesAreBundles(t *testing.T) {
	for _, c := range []struct {
		body string
		want string
		warn []string
	}{
		{envoyClusters, "[Cluster/example_proxy_cluster Cluster/other]", []string{
			"resources[0].connect_timeout: is not applied: each address has 20 s",
			"resources[0].eds_cluster_config.eds_config.path_config_source: is not read: " + from,
			"resources[1].eds_cluster_config.eds_config.path: is not read: " + from,
		}},
		{envoyFile, "[ClusterLoadAssignment/example_proxy_cluster]", []string{
			"note: resources[0].endpoints: " + strings.TrimPrefix(countsEndpoints, "note: endpoints: "),
			"note: resources[0].endpoints[0].locality: is absent: taken as the empty locality",
		}},
	} {
		b, err := decode.All([]byte(c.body), decode.Options{Format: decode.FormatYAML, Bare: true})
		noError(t, err)
		var keys []resource.Key
		for _, i := range b.Items {
			keys = append(keys, i.Key)
		}
		if fmt.Sprint(keys) != c.want || !sameSet(append(lines(b.Warnings), noted(b.Notes)...), c.warn) {
			t.Errorf("%v with warnings\n%s", keys, strings.Join(append(lines(b.Warnings), noted(b.Notes)...), "\n"))
		}
	}
}

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
