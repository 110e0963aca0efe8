package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store/file"
)

// input is a shape of input and what reads it.
type input struct {
	name string
	n    int // the smallest size; the largest is eight times that
	body func(n int) []byte
	read func(body []byte)
}

// shape is a text that repeats, of one format. A %d in it is the number of the repetition.
type shape struct {
	name              string
	n                 int
	begin, each, join string
	end               string
}

func (s *shape) body(n int) []byte {
	var b strings.Builder
	b.WriteString(s.begin)
	numbered := strings.Contains(s.each, "%d") || strings.Contains(s.each, "[1]")
	for i := range n {
		if i > 0 {
			b.WriteString(s.join)
		}
		if numbered {
			fmt.Fprintf(&b, s.each, i)
		} else {
			b.WriteString(s.each)
		}
	}
	b.WriteString(s.end)
	return []byte(b.String())
}

// deep is a text of which begin and end nest.
func deep(begin, middle, end string) func(n int) []byte {
	return func(n int) []byte { return []byte(strings.Repeat(begin, n) + middle + strings.Repeat(end, n)) }
}

const (
	endpointJSON = `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":%d}}}}`
	clusterJSON  = `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"c%d","type":"EDS"}`
	localities   = `{"endpoints":[{"locality":{},"lb_endpoints":[`
)

var yamls = []shape{
	{"endpoints", 250, "endpoints:\n- lb_endpoints:\n", "  - endpoint: {address: {socket_address: {address: h%d, port_value: 80}}}\n", "", ""},
	{"endpoints in block style", 125, "endpoints:\n- lb_endpoints:\n", "  - endpoint:\n      address:\n        socket_address:\n          address: h%d\n          port_value: 80\n", "", ""},
	{"localities", 125, "endpoints:\n", "- locality: {zone: z%d}\n  load_balancing_weight: 1\n  lb_endpoints: [{endpoint: {address: {socket_address: {address: h, port_value: 80}}}}]\n", "", ""},
	{"resources", 125, "resources:\n", "- \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: c%d\n  type: EDS\n", "", ""},
	{"list", 500, "", "- h%d:80 2 a/b\n", "", ""},
	{"list, an entry invalid", 500, "", "- h%d:80 2 a/b\n", "", "- x\n"},
	{"one key many times", 1000, "", "a: 1\n", "", ""},
	{"two keys many times", 500, "", "a: 1\nb: {}\n", "", ""},
	{"unknown fields", 1000, "", "a%d: 1\n", "", ""},
	{"a mapping as key", 500, "? {", "a%d: 1", ", ", "}\n: 1\n"},
	{"a mapping with one key many times as key", 500, "? {", "a: 1", ", ", "}\n: 1\n"},
	{"a list as key", 1000, "? [", "1", ", ", "]\n: 1\n"},
	{"merged list of one mapping", 500, "x: &a {b: 1}\ny: {<<: [", "*a", ", ", "]}\n"},
	{"merged list of mappings", 250, "x:\n", "- &a%d {b: 1}\n", "", "y: {<<: []}\n"},
	{"merge keys", 500, "x: &a {b: 1}\ny:\n", "  <<: *a\n", "", ""},
	{"merge keys that are overridden", 250, "a: &a {x: 1, y: 1}\n", "b%d: {<<: *a, x: 2}\n", "", ""},
	{"comments before a version", 1000, "", "# a\n", "", "%YAML 1.2\n--- a\n"},
	{"merge keys that are no mapping", 1000, "y:\n", "- {<<: 1}\n", "", ""},
	{"anchors", 500, "", "- &a%[1]d x\n- *a%[1]d\n", "", ""},
	{"aliases of one", 1000, "- &a x\n", "- *a\n", "", ""},
	{"unknown aliases", 1000, "", "- *a\n", "", ""},
	{"comments", 1000, "", "# a comment\n", "", "a: 1\n"},
	{"comments between", 500, "a:\n", "# a comment\n- 1\n", "", ""},
	{"comments after", 1000, "a: 1\n", "# a comment\n", "", ""},
	{"comments on lines", 1000, "a:\n", "- 1 # a comment\n", "", ""},
	{"documents", 1000, "", "---\na: 1\n", "", ""},
	{"empty documents", 1000, "", "---\n", "", ""},
	{"block scalar", 2000, "a: |\n", " x\n", "", ""},
	{"folded scalar", 2000, "a: >\n", " x\n", "", ""},
	{"plain scalar of many lines", 2000, "a: x\n", " x\n", "", ""},
	{"quoted scalar of many lines", 2000, "a: \"x\n", " x\n", "", "\"\n"},
	{"quoted scalar without end", 2000, "a: \"x\n", " x\n", "", ""},
	{"escapes", 2000, "a: \"", "\\x41", "", "\"\n"},
	{"one long line", 8000, "a: \"", "xxxxxxxxxx", "", "\"\n"},
	{"one long word", 8000, "", "xxxxxxxxxx", "", ""},
	{"one long flow list", 2000, "a: [", "1", ", ", "]\n"},
	{"a flow list without end", 2000, "a: [", "1", ", ", ""},
	{"a flow list of keys without end", 2000, "a: [", "b: 1", ", ", ""},
	{"a flow list of lists without end", 2000, "a: [", "[1], [", "", ""},
	{"a flow mapping without end", 2000, "a: {", "b%d: 1", ", ", ""},
	{"question marks", 1000, "", "? a%d\n", "", ""},
	{"spaces", 8000, "a:", "    ", "", "1\n"},
	{"empty lines", 8000, "a:", "\n", "", " 1\n"},
	{"tags", 1000, "", "- !a x\n", "", ""},
	{"directives", 1000, "", "%%TAG !a%d! tag:b\n", "", "---\na: 1\n"},
	{"binary", 1000, "", "- !!binary aGVsbG8=\n", "", ""},
	{"floats", 1000, "", "- 1.5\n", "", ""},
	{"tabs", 2000, "a:\n", "\t", "", ""},
	{"dashes", 2000, "", "- ", "", "\n"},
}

var jsons = []shape{
	{"endpoints", 500, localities, endpointJSON, ",", "]}]}"},
	{"endpoints that break a rule", 500, localities, `{"endpoint":{"address":{"socket_address":{"address":"10.0.0.1","port_value":0}},"hostname":"h%d"}}`, ",", "]}]}"},
	{"endpoints that are there twice", 500, localities, strings.Replace(endpointJSON, "%d", "1", 1), ",", "]}]}"},
	{"endpoints with unknown fields", 250, localities, `{"x%d":1}`, ",", "]}]}"},
	{"endpoints with misspelled fields", 250, localities, `{"endpoin":{"a%d":1}}`, ",", "]}]}"},
	{"a value of a wrong type after endpoints", 500, localities, endpointJSON, ",", `]}],"policy":7}`},
	{"a text that ends", 500, localities, endpointJSON, ",", ""},
	{"a config dump", 62, `{"configs":[{"dynamic_active_clusters":[`, `{"cluster":` + clusterJSON + "}", ",", "]}]}"},
	{"static clusters of a bootstrap", 125, `{"static_resources":{"clusters":[`, `{"name":"c%d","load_assignment":` + localities + strings.Replace(endpointJSON, "%d", "1", 1) + "]}]}}", ",", "]}}"},
	{"a list of clusters", 125, "[", `{"name":"c%d","type":"EDS"}`, ",", "]"},
	{"objects by name", 500, "{", `"a%d":{"b":{}}`, ",", "}"},
	{"objects by one name", 500, `{"a":{`, `"a%d":{"b":{}}`, ",", "}}"},
	{"hash keys", 250, localities, `{"endpoint":{"address":{"socket_address":{"address":"H%d","port_value":80}}},"metadata":{"filter_metadata":{"envoy.lb":{"hash_key":"a"}}}}`, ",", "]}]}"},
	{"localities", 250, `{"endpoints":[`, `{"locality":{"zone":"z%d"},"load_balancing_weight":1,"lb_endpoints":[]}`, ",", "]}"},
	{"localities that are there twice", 250, `{"endpoints":[`, `{"locality":{"zone":"z"},"load_balancing_weight":1,"lb_endpoints":[]}`, ",", "]}"},
	{"priorities", 250, `{"endpoints":[`, `{"locality":{"zone":"z%[1]d"},"priority":%[1]d,"load_balancing_weight":1,"lb_endpoints":[]}`, ",", "]}"},
	{"additional addresses", 250, localities + `{"endpoint":{"address":{"socket_address":{"address":"h","port_value":80}},"additional_addresses":[`, `{"address":{"socket_address":{"address":"h%d","port_value":80}}}`, ",", "]}}]}]}"},
	{"drops", 500, `{"policy":{"drop_overloads":[`, `{"category":"c%d","drop_percentage":{"numerator":1}}`, ",", "]}}"},
	{"metadata", 500, `{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"h","port_value":80}}},"metadata":{"filter_metadata":{`, `"k%d":{"a":1}`, ",", "}}}]}]}"},
	{"metadata of lbd", 500, `{"endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"h","port_value":80}}},"metadata":{"filter_metadata":{"lbd":{`, `"k%d":1`, ",", "}}}}]}]}"},
	{"resources", 250, `{"resources":[`, clusterJSON, ",", "]}"},
	{"resources that are there twice", 250, `{"resources":[`, strings.Replace(clusterJSON, "%d", "", 1), ",", "]}"},
	{"resources that are wrapped", 250, `{"resources":[`, `{"@type":"type.googleapis.com/envoy.service.discovery.v3.Resource","name":"c%[1]d","resource":{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"c%[1]d","type":"EDS"}}`, ",", "]}"},
	{"resources that break a rule", 250, `{"resources":[`, `{"@type":"type.googleapis.com/envoy.config.cluster.v3.Cluster","name":"c%d","type":"STATIC"}`, ",", "]}"},
	{"resources of unknown types", 250, `{"resources":[`, `{"@type":"x%d"}`, ",", "]}"},
	{"resources without types", 250, `{"resources":[`, `{"name":"c%d"}`, ",", "]}"},
	{"resources that are no objects", 1000, `{"resources":[`, `1`, ",", "]}"},
	{"members of the envelope", 1000, `{"resources":[],`, `"x%d":1`, ",", "}"},
	{"one member many times", 1000, `{`, `"endpoints":[]`, ",", "}"},
	{"unknown members", 1000, `{`, `"x%d":1`, ",", "}"},
	{"the resources many times", 1000, `{`, `"resources":[]`, ",", "}"},
	{"list", 1000, `[`, `"h%d:80 2 a/b"`, ",", "]"},
	{"list with a locality each", 500, `[`, `"h:80 2 a/b%d"`, ",", "]"},
	{"list that ends with a number", 1000, `[`, `"h%d:80"`, ",", ",1]"},
	{"escapes", 2000, `{"cluster_name":"`, `\u0041`, "", `"}`},
	{"a string without end", 8000, `{"cluster_name":"`, `xxxx`, "", ``},
	{"spaces", 8000, `{"cluster_name":`, "    ", "", `"x"}`},
	{"empty lines", 8000, `{"cluster_name":`, "\n", "", `"x", 1}`},
	{"brackets that close", 8000, `{}`, "]", "", ""},
	{"commas", 2000, `{`, ",", "", "}"},
	{"clusters of an aggregate", 250, `{"name":"x","cluster_type":{"name":"envoy.clusters.aggregate","typed_config":{"@type":"type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig","clusters":[`, `"c%d"`, ",", "]}}}"},
	{"policies", 125, `{"name":"x","type":"EDS","load_balancing_policy":{"policies":[`, `{"typed_extension_config":{"name":"p%d","typed_config":{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"x/y","value":{}}}}`, ",", "]}}"},
	{"virtual hosts", 125, `{"name":"x","virtual_hosts":[`, `{"name":"v%[1]d","domains":["d%[1]d"],"routes":[{"match":{"prefix":""},"route":{"cluster":"c"}}]}`, ",", "]}"},
	{"domains", 500, `{"name":"x","virtual_hosts":[{"name":"v","domains":[`, `"d%d"`, ",", `],"routes":[]}]}`},
	{"domains that are there twice", 500, `{"name":"x","virtual_hosts":[{"name":"v","domains":[`, `"d"`, ",", `],"routes":[]}]}`},
	{"routes", 250, `{"name":"x","virtual_hosts":[{"name":"v","domains":["*"],"routes":[`, `{"match":{"prefix":"/%d"},"route":{"cluster":"c"}}`, ",", `]}]}`},
	{"routes that break a rule", 250, `{"name":"x","virtual_hosts":[{"name":"v","domains":["*"],"routes":[`, `{"match":{"prefix":"/%d"}}`, ",", `]}]}`},
	{"routes with regular expressions", 62, `{"name":"x","virtual_hosts":[{"name":"v","domains":["*"],"routes":[`, `{"match":{"safe_regex":{"regex":"a%d[a-z]*"}},"route":{"cluster":"c"}}`, ",", `]}]}`},
	{"weighted clusters", 12, `{"name":"x","virtual_hosts":[{"name":"v","domains":["*"],"routes":[{"match":{"prefix":""},"route":{"weighted_clusters":{"clusters":[`, `{"name":"c%d","weight":1}`, ",", `]}}}]}]}`},
}

var lists = []shape{
	{"endpoints", 1000, "", "h%d:80 2 a/b\n", "", ""},
	{"a locality each", 500, "", "h:80 2 a/b%d\n", "", ""},
	{"an invalid end", 1000, "", "h%d:80\n", "", "x\n"},
	{"comments", 1000, "", "# x\n", "", ""},
	{"empty lines", 8000, "", "\n", "", ""},
	{"one long line", 1000, "h:80", " x", "", ""},
	{"spaces", 8000, "h:80", "    ", "", "1"},
}

var bootstraps = []shape{
	{"servers", 125, `{"xds_servers":[`, `{"server_uri":"h:%d","channel_creds":[{"type":"insecure"}]}`, ",", "]}"},
	{"one server many times", 125, `{"xds_servers":[`, `{"server_uri":"h:1","channel_creds":[{"type":"insecure"}]}`, ",", "]}"},
	{"servers that break a rule", 125, `{"xds_servers":[`, `{"server_uri":"h:%d"}`, ",", "]}"},
	{"authorities", 125, `{"xds_servers":[{"server_uri":"h:1","channel_creds":[{"type":"insecure"}]}],"authorities":{`, `"a%d":{}`, ",", "}}"},
	{"unknown members", 250, `{`, `"x%d":1`, ",", "}"},
	{"one member many times", 250, `{`, `"node":{}`, ",", "}"},
	{"metadata", 250, `{"node":{"id":"x","metadata":{`, `"k%d":1`, ",", "}}}"},
	{"a text that ends", 125, `{"xds_servers":[`, `{"server_uri":"h:%d"}`, ",", ""},
	{"empty lines", 1000, `{"xds_servers":`, "\n", "", "7, x}"},
}

var identities = []shape{
	{"tokens", 62, "tokens:\n", "- {name: n%[1]d, roles: [pick], sha256: %064[1]x}\n", "", ""},
	{"tokens with one sum", 62, "tokens:\n", "- {name: n%d, roles: [pick], sha256: " + strings.Repeat("0", 64) + "}\n", "", ""},
	{"tokens that break a rule", 62, "tokens:\n", "- {name: n%d, roles: [x]}\n", "", ""},
	{"tokens with unknown fields", 62, "tokens:\n", "- {name: n%d, role: [x]}\n", "", ""},
	{"certificates", 62, "certificates:\n", "- {name: n%[1]d, roles: [pick], san: \"dns:x%[1]d\"}\n", "", ""},
	{"peers", 62, "unix_peers:\n", "- {name: n%[1]d, roles: [pick], uid: %[1]d}\n", "", ""},
	{"quotas", 62, "quotas:\n", "  q%d: {leases: 1}\n", "", ""},
	{"quotas that break a rule", 62, "quotas:\n", "  q%d: {leases: -1}\n", "", ""},
	{"patterns", 12, "tokens:\n- {name: n, roles: [pick], sha256: " + strings.Repeat("0", 64) + ", clusters: [", "x%d*", ", ", "]}\n"},
	{"one key many times", 500, "", "tokens: []\n", "", ""},
}

var queries = []shape{
	{"exclude", 62, "/pick?cluster=x&exclude=", "h%d:80", ",", ""},
	{"exclude many times", 62, "/pick?cluster=x", "&exclude=h%d:80", "", ""},
	{"unknown parameters", 62, "/pick?cluster=x", "&p%d=1", "", ""},
	{"headers", 12, "/pick?target=x", "&header.a%d=1", "", ""},
	{"escapes", 62, "/pick?cluster=", "%41", "", ""},
	{"empty parameters", 500, "/pick?cluster=x", "&", "", ""},
	{"a path of many parts", 125, "/v1/clusters", "/a", "", ""},
	{"a path of dots", 125, "/v1/clusters", "/..", "", ""},
	{"a long name", 125, "/v1/clusters/", "x", "", ""},
	{"a list of clusters", 62, "/v1/clusters?cluster=", "x%d", ",", ""},
}

// inputs returns all inputs.
func inputs() []input {
	var all []input
	add := func(kind string, shapes []shape, read func(body []byte)) {
		for _, s := range shapes {
			if s.each != "" {
				all = append(all, input{kind + ": " + s.name, s.n, s.body, read})
			}
		}
	}
	add("YAML", yamls, readText(decode.FormatYAML))
	add("JSON", jsons, readText(decode.FormatJSON))
	for _, nested := range []input{
		{"YAML: lists in lists", 125, deep("[", "1", "]"), nil},
		{"YAML: mappings in mappings", 125, deep("{a: ", "1", "}"), nil},
		{"YAML: an indent for each line", 12, indented, nil},
		{"JSON: lists in lists", 125, deep("[", "1", "]"), nil},
		{"JSON: objects in objects", 4, deep(`{"endpoints":`, "1", "}"), nil},
		{"JSON: wrapped in wrapped", 4, deep(`{"@type":"type.googleapis.com/envoy.service.discovery.v3.Resource","resource":`, "{}", "}"), nil},
	} {
		f := decode.FormatYAML
		if strings.HasPrefix(nested.name, "JSON") {
			f = decode.FormatJSON
		}
		nested.read = readText(f)
		all = append(all, nested)
	}
	add("list", lists, func(b []byte) {
		_, _ = decode.One(resource.TypeAssignment, b, decode.Options{Format: decode.FormatText})
	})
	add("bootstrap", bootstraps, func(b []byte) { _, _ = bootstrap.Parse(b, bootstrap.Options{}) })
	add("identities", identities, func(b []byte) { _, _ = access.Parse(b) })
	add("query", queries, query())
	for _, s := range jsons {
		if strings.HasPrefix(s.begin, `{"resources"`) || s.begin[0] == '[' || s.end == "" {
			continue
		}
		if raw := protobufs(s.body(s.n)); raw != nil && len(protobufs(s.body(8*s.n))) > len(raw) {
			all = append(all, input{"protobuf: " + s.name, s.n, func(n int) []byte { return protobufs(s.body(n)) }, readBinary})
		}
	}
	all = append(all,
		input{"protobuf: unknown fields", 1000, repeated("\x80\x7d\x01"), readBinary},
		input{"protobuf: empty localities", 1000, repeated("\x12\x00"), readBinary},
		input{"protobuf: one field many times", 1000, repeated("\x0a\x01x"), readBinary},
		input{"protobuf: no field", 1000, repeated("\xff"), readBinary},
		input{"protobuf: groups", 1000, repeated("\x0b"), readBinary},
		input{"protobuf: a bundle of empty resources", 1000, repeated("\x12\x00"), func(b []byte) {
			_, _ = decode.All(b, decode.Options{Format: decode.FormatProtobuf})
		}},
	)
	return all
}

func indented(n int) []byte {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return []byte(b.String())
}

func repeated(s string) func(n int) []byte {
	return func(n int) []byte { return []byte(strings.Repeat(s, n)) }
}

// readText reads a text as a push and as a file.
func readText(f decode.Format) func([]byte) {
	return func(body []byte) {
		o := decode.Options{Format: f, Places: true, Bare: true, Policies: lb.PolicyTraits}
		_, err := decode.All(body, o)
		if o.Lenient = true; err != nil {
			decode.Valid(body, o)
		}
		if d, err := decode.One(resource.TypeAssignment, body, o); err == nil {
			_, _ = decode.Render(d.Key.Type, d.Raw, f)
		}
	}
}

// protobufs returns the resource of a JSON text as protobuf, or nil if it is not valid.
func protobufs(body []byte) []byte {
	for _, t := range []resource.Type{resource.TypeAssignment, resource.TypeCluster, resource.TypeRoutes} {
		if d, err := decode.One(t, body, decode.Options{Policies: lb.PolicyTraits, Stored: true}); err == nil {
			return d.Raw
		}
	}
	return nil
}

// binary reads a resource as that of a management server and as a push.
func readBinary(body []byte) {
	for _, t := range []resource.Type{resource.TypeAssignment, resource.TypeCluster, resource.TypeRoutes} {
		_, _ = decode.Resource(t, &anypb.Any{TypeUrl: t.URL(), Value: body}, decode.Options{Origin: decode.FromServer, Policies: lb.PolicyTraits})
		_, _ = decode.One(t, body, decode.Options{Format: decode.FormatProtobuf, Policies: lb.PolicyTraits})
	}
}

// query returns a function that makes a request.
func query() func([]byte) {
	discard := slog.New(slog.DiscardHandler)
	s := service.New(service.Options{
		Logger:     discard,
		Connectors: map[resource.ConnectMode]lb.Connector{resource.ConnectDefault: nil, resource.ConnectNone: nil},
		Sources:    sources.Settings{ConnectMode: resource.ConnectNone},
	})
	st, err := file.Open("", file.Options{OnCommit: s.Inbound.Commit})
	if err == nil {
		err = s.Start(context.Background(), sources.Connections{Store: st})
	}
	if err != nil {
		panic(err)
	}
	o := api.OptionsFor(s)
	o.Logger = discard
	handler := api.New(o)
	return func(body []byte) {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := httptest.NewRequestWithContext(context.Background(), method, string(body), http.NoBody)
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
}
