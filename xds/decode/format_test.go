package decode_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	assignmentType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	clusterType    = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	responseType   = "type.googleapis.com/envoy.service.discovery.v3.DiscoveryResponse"
	wrapperType    = "type.googleapis.com/envoy.service.discovery.v3.Resource"
)

func TestSyntaxErrors(t *testing.T) {
	deepJSON := strings.Repeat(`{"a":`, 101) + "1" + strings.Repeat("}", 101)
	const socket = "endpoints[0].lb_endpoints[0].endpoint.address.socket_address"
	named := one(`{"endpoint":{"address":{"socketAddress":{"address":"h","portValue":"http"}}}}`)
	for _, c := range []struct {
		name   string
		format decode.Format
		body   string
		want   string
	}{
		{"empty", decode.FormatJSON, " \n", "read JSON: the body is empty"},
		{"a list of numbers", decode.FormatJSON, `[1]`, "read JSON: [0]: is no string: write ADDRESS:PORT [WEIGHT] [REGION/ZONE], such as 10.0.0.7:8080 2 eu/a"},
		{"null", decode.FormatJSON, `null`, "read JSON: line 1, column 1: unexpected token null, where an object is wanted"},
		{"cut short", decode.FormatJSON, "{\n\"endpoints\":[{", "read JSON: line 2, column 15: endpoints[0]: the body is cut short"},
		{"cut short in a text", decode.FormatJSON, `{"cluster_name":"ord`, "read JSON: line 1, column 21: cluster_name: the body is cut short"},
		{"more after it", decode.FormatJSON, `{} {}`, "read JSON: line 1, column 4: unexpected token {"},
		{"no JSON", decode.FormatJSON, `{"cluster_name":orders}`, `read JSON: line 1, column 17: cluster_name: invalid value orders`},
		{"a field twice", decode.FormatJSON, "{\"cluster_name\":\"a\",\n \"clusterName\":\"b\"}", `read JSON: line 2, column 2: cluster_name: duplicate field "clusterName"`},
		{
			"a number that is a text", decode.FormatJSON, named,
			fmt.Sprintf(`read JSON: line 1, column %d: %s.port_value: "http" is no uint32: write a whole number from 0 to 4294967295`, strings.Index(named, `"http"`)+1, socket),
		},
		{
			"a negative port", decode.FormatYAML, one(`{"endpoint":{"address":{"socketAddress":{"address":"h","portValue":-1}}}}`),
			"read YAML: line 1, column 174: " + socket + ".port_value: -1 is no uint32: write a whole number from 0 to 4294967295",
		},
		{
			"a text that is a number", decode.FormatYAML, "endpoints: [{locality: {zone: 7}}]",
			"read YAML: line 1, column 25: endpoints[0].locality.zone: 7 is no string: put it in quotes",
		},
		{"an object for a list", decode.FormatYAML, "endpoints: {}", "read YAML: line 1, column 1: endpoints: unexpected token {, where a list is wanted"},
		{"a list for an object", decode.FormatYAML, "policy: []", "read YAML: line 1, column 1: policy: unexpected token [, where an object is wanted"},
		{"a number for an object", decode.FormatYAML, "endpoints: [7]", "read YAML: line 1, column 13: endpoints[0]: unexpected token 7, where an object is wanted"},
		{"a text for a duration", decode.FormatYAML, "policy: {endpoint_stale_after: soon}", `read YAML: line 1, column 10: policy.endpoint_stale_after: invalid google.protobuf.Duration value "soon": write a duration in seconds, such as "30s" or "0.5s"`},
		{
			"a wrong type beside an unknown field", decode.FormatJSON, `{"foo":1,"endpoints":[{"priority":"x"}]}`,
			`read JSON: line 1, column 35: endpoints[0].priority: "x" is no uint32: write a whole number from 0 to 4294967295`,
		},
		{
			"within an Any", decode.FormatYAML, "resources: [{'@type': " + assignmentType + ", endpoints: [{priority: x}]}]",
			`read YAML: line 1, column 104: resources[0].endpoints[0].priority: "x" is no uint32: write a whole number from 0 to 4294967295`,
		},
		{"deep JSON", decode.FormatJSON, deepJSON, "read JSON: the body nests deeper than 100"},
		{"deep YAML", decode.FormatYAML, deepJSON, "read YAML: the body nests deeper than 100"},
		{"no YAML", decode.FormatYAML, "a: 1\nb: [", "read YAML: line 2: did not find expected node content"},
		{"empty YAML", decode.FormatYAML, "# nothing\n", "read YAML: the body is empty"},
		{"a YAML text", decode.FormatYAML, "orders", `read YAML: unexpected token "orders", where an object is wanted`},
		{"a key twice", decode.FormatYAML, "policy: {}\ncluster_name: a\ncluster_name: b\n", `read YAML: line 3: key "cluster_name" already set in map`},
		{"two documents", decode.FormatYAML, "cluster_name: a\n---\ncluster_name: b\n", "read YAML: the body holds several documents, where one is wanted"},
		{"a list as key", decode.FormatYAML, "? [a]\n: b\n", `read YAML: invalid map key: ["a"]`},
		{"empty protobuf", decode.FormatProtobuf, "", "read protobuf: byte 0: the body is empty"},
		{"protobuf cut short", decode.FormatProtobuf, "\x0a\x06ord", "read protobuf: byte 1: cluster_name: the message is cut short"},
		{
			"protobuf cut short within", decode.FormatProtobuf, "\x0a\x01o\x12\x02\x28\x00\x12\x02\x0a\x05",
			"read protobuf: byte 10: endpoints[1].locality: the message is cut short",
		},
		{"protobuf with a text that is none", decode.FormatProtobuf, "\x0a\x01\xff", "read protobuf: byte 2: cluster_name: the text is not valid UTF-8"},
		{"no protobuf", decode.FormatProtobuf, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "read protobuf: byte 0: the bytes are no protobuf: variable length integer overflow"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decode.One(resource.TypeAssignment, []byte(c.body), decode.Options{Format: c.format, Name: "orders"})
			var syntax *decode.SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("err = %v, want a SyntaxError", err)
			}
			if got := strings.ReplaceAll(err.Error(), "\u00a0", " "); got != c.want {
				t.Errorf("%s\nwant\n%s", got, c.want)
			}
			if syntax.Format != c.format {
				t.Errorf("format %v", syntax.Format)
			}
		})
	}
}

// An alias repeats what may be large: the text of a body bounds what it becomes.
func TestAliasesThatGrow(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 10), ", "))
	}
	large := "a: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a, ", 10_000), ", ") + "]\n"
	for _, body := range []string{laughs.String(), large} {
		_, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{Format: decode.FormatYAML, Name: "orders"})
		var syntax *decode.SyntaxError
		if !errors.As(err, &syntax) || !strings.Contains(syntax.Reason, "alias") {
			t.Errorf("err = %v, want a SyntaxError about aliases", err)
		}
	}
	modest := "cluster_name: orders\nendpoints:\n- locality: &l {zone: a}\n  priority: 0\n  load_balancing_weight: 1\n- locality: *l\n  priority: 1\n  load_balancing_weight: 1\n"
	if d, err := decode.One(resource.TypeAssignment, []byte(modest), decode.Options{Format: decode.FormatYAML}); err != nil || weights(d.Assignment) != "a@0=1 a@1=1" {
		t.Errorf("decoded %v, %v", d, err)
	}
}

func TestYAMLWrittenAsPeopleDo(t *testing.T) {
	const bom = "\ufeff"
	for _, c := range []struct{ name, body string }{
		{"document start and end", "---\ncluster_name: orders\n---\n"},
		{"byte order mark", bom + "cluster_name: orders\n"},
		{"JSON", `{"cluster_name": "orders"}`},
		{"a merged mapping", "<<: {cluster_name: orders}\n"},
		{"lowerCamelCase", "clusterName: orders\n"},
	} {
		d, err := decode.One(resource.TypeAssignment, []byte(c.body), decode.Options{Format: decode.FormatYAML})
		if err != nil || d.Assignment.Name != "orders" || len(d.Warnings) != 0 {
			t.Errorf("%s: %+v, %v", c.name, d, err)
		}
	}
	if d, err := decode.One(resource.TypeAssignment, []byte(bom+`{"cluster_name":"orders"}`), decode.Options{}); err != nil || d.Assignment.Name != "orders" {
		t.Errorf("JSON with a byte order mark: %+v, %v", d, err)
	}
}

func TestUnknownFields(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"none", `{"clusterName":"orders","endpoints":[{"lb_endpoints":[]}]}`, nil},
		{"at the top", `{"cluster_name":"orders","foo":{"bar":[1]}}`, []string{`foo: unknown field of ClusterLoadAssignment`}},
		{
			"in lists, among known ones in both spellings",
			`{"cluster_name":"orders","endpoints":[{"loadBalancingWeight":1},{"load_balancing_weight":1,"priority":1,"lbEndpoints":[{"hostname":"x","healthStatus":2,"endpoint":{"address":{"socketAddress":{"address":"h","portValue":1,"port":2}}}}]}]}`,
			[]string{
				`endpoints[1].lb_endpoints[0].endpoint.address.socket_address.port: unknown field (did you mean port_value?)`,
				`endpoints[1].lb_endpoints[0].hostname: unknown field (did you mean endpoint.hostname?)`,
			},
		},
		{"in a map", `{"cluster_name":"orders","named_endpoints":{"a":{},"b":{"foo":1}}}`, []string{`named_endpoints["b"].foo: unknown field of Endpoint`}},
		{"a Struct knows every field", `{"cluster_name":"orders","foo":1,"endpoints":[{"load_balancing_weight":1,"metadata":{"filter_metadata":{"x":{"foo":1}}}}]}`, []string{`foo: unknown field of ClusterLoadAssignment`}},
		{
			"in an Any", `{"cluster_name":"orders","endpoints":[{"load_balancing_weight":1,"metadata":{"typed_filter_metadata":{"x":{"@type":"` + clusterType + `","name":"n","foo":1}}}}]}`,
			[]string{`endpoints[0].metadata.typed_filter_metadata["x"].foo: unknown field of Cluster`},
		},
		{"in an envelope", `{"resources":[{"@type":"` + assignmentType + `","cluster_name":"orders","foo":1}],"bar":2}`, []string{`bar: unknown field of DiscoveryResponse`, `foo: unknown field of ClusterLoadAssignment`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := accept(t, resource.TypeAssignment, c.body, decode.Options{Lenient: true})
			var got []string
			for _, w := range lines(d.Warnings) {
				if reason, ok := strings.CutSuffix(w, ": ignored"); ok {
					got = append(got, reason)
				}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			_, err := decode.One(resource.TypeAssignment, []byte(c.body), decode.Options{})
			expect(t, "strict", refusals(t, err, "ClusterLoadAssignment/orders"), c.want)
		})
	}
}

func TestUnknownFieldsOfProtobuf(t *testing.T) {
	field := func(num protowire.Number, value ...byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), value)
	}
	unknown := field(1000, 1)
	// endpoints[1] holds one, and so does the Cluster that its metadata
	// carries; the top holds two of the same number.
	carried := append(field(1, []byte(clusterType)...), field(2, append(field(1, 'n'), unknown...)...)...)
	metadata := field(2, append(field(1, 'x'), field(2, carried...)...)...)
	body := append(field(1, []byte("orders")...), field(2)...)
	body = append(body, field(2, append(field(9, metadata...), unknown...)...)...)
	body = append(append(body, unknown...), unknown...)
	want := []string{
		"1000: unknown field number 1000",
		"endpoints[1].1000: unknown field number 1000",
		`endpoints[1].metadata.typed_filter_metadata["x"].1000: unknown field number 1000`,
	}
	for _, origin := range []decode.Origin{decode.FromServer} {
		d := accept(t, resource.TypeAssignment, body, decode.Options{Origin: origin, Format: decode.FormatProtobuf})
		var got []string
		for _, w := range lines(d.Warnings) {
			if reason, ok := strings.CutSuffix(w, ": ignored"); ok {
				got = append(got, reason)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("warnings:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestUnreadableAny(t *testing.T) {
	body := eds(
		choose(policies(`{"@type":"type.googleapis.com/acme.Balancer","x":1}`, policy(roundRobin))),
		`"transport_socket":{"name":"x","typed_config":{"name":"y"}}`,
		`"transport_socket_matches":[{}]`)
	_, err := decode.One(resource.TypeCluster, []byte(body), decode.Options{})
	want := []string{
		`load_balancing_policy.policies[0].typed_extension_config.typed_config.@type: is "type.googleapis.com/acme.Balancer", ` +
			"a type that lbd does not know, so that its JSON cannot be read: check the name, or leave it out",
		"transport_socket.typed_config.@type: is absent: it must name the type of message",
		"transport_socket_matches: is not supported",
	}
	expect(t, "refusals", refusals(t, err, "Cluster/orders"), want)
}

func TestEnvelopes(t *testing.T) {
	plain := localities(locality("a", 0, 1, endpoint("h", 80)))
	typed := `{"@type":"` + assignmentType + `",` + plain[1:]
	want := accept(t, resource.TypeAssignment, plain, decode.Options{})
	for name, body := range map[string]string{
		"typed":              typed,
		"response":           `{"version_info":"1","resources":[` + typed + `],"nonce":"n"}`,
		"typed response":     `{"@type":"` + responseType + `","resources":[` + typed + `]}`,
		"wrapped":            `{"@type":"` + wrapperType + `","name":"orders","resource":` + typed + `}`,
		"wrapped response":   `{"resources":[{"@type":"` + wrapperType + `","resource":` + typed + `}]}`,
		"type after content": `{"cluster_name":"orders","endpoints":[` + locality("a", 0, 1, endpoint("h", 80)) + `],"@type":"` + assignmentType + `"}`,
	} {
		for _, f := range []decode.Format{decode.FormatJSON, decode.FormatYAML} {
			d, err := decode.One(resource.TypeAssignment, []byte(body), decode.Options{Format: f})
			if err != nil {
				t.Errorf("%s as %s: %v", name, f, err)
				continue
			}
			if !reflect.DeepEqual(d, want) {
				t.Errorf("%s as %s: %+v, want %+v", name, f, d, want)
			}
		}
	}
}

func TestBinaryEnvelopes(t *testing.T) {
	raw := large(t)
	want := accept(t, resource.TypeAssignment, raw, decode.Options{Format: decode.FormatProtobuf})
	carry := func(url string, value []byte) []byte {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), url)
		return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), value)
	}
	respond := func(resources ...[]byte) []byte {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "7")
		for _, r := range resources {
			b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), r)
		}
		return b
	}
	wrapped := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), carry(assignmentType, raw))
	for name, body := range map[string][]byte{
		"response": respond(carry(assignmentType, raw)),
		"wrapped":  respond(carry(wrapperType, wrapped)),
	} {
		d, err := decode.One(resource.TypeAssignment, body, decode.Options{Format: decode.FormatProtobuf})
		if err != nil || !reflect.DeepEqual(d, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := decode.One(resource.TypeAssignment, respond(carry(clusterType, nil)), decode.Options{Format: decode.FormatProtobuf, Name: "orders"})
	wantProblem := []string{fmt.Sprintf("resources[0].@type: is %q, where a ClusterLoadAssignment is wanted (%s)", clusterType, assignmentType)}
	expect(t, "refusals", refusals(t, err, "ClusterLoadAssignment/orders"), wantProblem)
}

func TestEnvelopesOfSomethingElse(t *testing.T) {
	const key = "ClusterLoadAssignment/orders"
	typed := func(url string) string { return `{"@type":"` + url + `"}` }
	wrong := func(url string) string {
		return fmt.Sprintf("is %q, where a ClusterLoadAssignment is wanted (%s)", url, assignmentType)
	}
	const foreign = "type.googleapis.com/acme.Thing"
	unread := fmt.Sprintf("is %q, a type that lbd does not know, so that its JSON cannot be read: check the name, or leave it out", foreign)
	for _, c := range []struct{ name, body, want string }{
		{"another type", typed(clusterType), "@type: " + wrong(clusterType)},
		{"another type in a response", `{"resources":[` + typed(clusterType) + `]}`, "resources[0].@type: " + wrong(clusterType)},
		{"an unknown type", typed(foreign), "@type: " + unread},
		{"an unknown type in a response", `{"resources":[` + typed(foreign) + `]}`, "resources[0].@type: " + unread},
		{"no type in a response", `{"resources":[{}]}`, "resources[0].@type: " + wrong("")},
		{"no resource", `{"resources":[]}`, "resources: holds 0 resources, where just one ClusterLoadAssignment is wanted"},
		{
			"two resources", `{"resources":[` + typed(assignmentType) + `,` + typed(assignmentType) + `]}`,
			"resources: holds 2 resources, where just one ClusterLoadAssignment is wanted",
		},
		{"a cluster without envelope", `{"name":"orders","type":"EDS"}`, "holds no field of a ClusterLoadAssignment: is it a Cluster?"},
	} {
		_, err := decode.One(resource.TypeAssignment, []byte(c.body), decode.Options{Name: "orders"})
		if got := refusals(t, err, key); !reflect.DeepEqual(got, []string{c.want}) {
			t.Errorf("%s: refusals %q, want %q", c.name, got, c.want)
		}
	}
}
