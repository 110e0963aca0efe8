package decode_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// hosts is the JSON of a RouteConfiguration with these virtual hosts.
func hosts(list ...string) string {
	return `{"name":"r","virtual_hosts":[` + strings.Join(list, ",") + `]}`
}

// routes is the JSON of a RouteConfiguration with these routes for everybody.
func routes(list ...string) string { return hosts(virtualHost(list...)) }

func virtualHost(routes ...string) string {
	return `{"name":"v","domains":["*"],"routes":[` + strings.Join(routes, ",") + `]}`
}

// matching is the JSON of a route to cluster a, with a match of these fields.
func matching(fields ...string) string {
	return `{"match":{` + strings.Join(fields, ",") + `},"route":{"cluster":"a"}}`
}

// acting is the JSON of a route for everything, with an action of these fields.
func acting(fields ...string) string {
	return `{"match":{"prefix":""},"route":{` + strings.Join(fields, ",") + `}}`
}

// filter is the JSON of an Any of a type of envoy.extensions.filters.http.
func filter(name string, fields ...string) string {
	return "{" + strings.Join(append([]string{`"@type":"type.googleapis.com/envoy.extensions.filters.http.` + name + `"`}, fields...), ",") + "}"
}

const (
	fault   = "fault.v3.HTTPFault"
	router  = "router.v3.Router"
	cors    = "cors.v3.CorsPolicy"
	rbac    = "rbac.v3.RBAC"
	rbacPer = "rbac.v3.RBACPerRoute"
	lookup  = "type.googleapis.com/grpc.lookup.v1.RouteLookupClusterSpecifier"
)

// TestRoutesAreRead: what both origins read alike.
func TestRoutesAreRead(t *testing.T) {
	all := resource.RouteMatch{Prefix: new("")}
	to := func(name string) *resource.Route {
		return &resource.Route{Match: all, Clusters: []resource.WeightedCluster{{Name: name, Weight: 1}}, TotalWeight: 1}
	}
	where := func(m resource.RouteMatch) *resource.Route {
		r := to("a")
		r.Match = m
		return r
	}
	header := func(h resource.HeaderMatch) *resource.Route {
		h.Name = "x"
		return where(resource.RouteMatch{Prefix: new(""), Headers: []resource.HeaderMatch{h}})
	}
	text := func(m resource.StringMatch) *resource.Route { return header(resource.HeaderMatch{String: m}) }
	whole := func(s string) *regexp.Regexp { return regexp.MustCompile("^(?:" + s + ")$") }
	fraction := func(n uint32) *resource.Route {
		return where(resource.RouteMatch{Prefix: new(""), HasFraction: true, PerMillion: n})
	}
	hashed := func(policies ...resource.HashPolicy) *resource.Route {
		r := to("a")
		r.Hash = policies
		return r
	}
	noCluster := func(action string) *resource.Route { return &resource.Route{Match: all, Unsupported: action} }
	onHeader := func(condition string) string {
		return matching(`"prefix":""`, `"headers":[{"name":"X",`+condition+`}]`)
	}
	onFraction := func(p string) string { return matching(`"prefix":""`, `"runtime_fraction":{"default_value":`+p+`}`) }
	hashing := func(policies string) string { return acting(`"cluster":"a"`, `"hash_policy":[`+policies+`]`) }

	for _, c := range []struct {
		name string
		body string
		want *resource.Route // nil: left out
	}{
		{"prefix", matching(`"prefix":"/a"`), where(resource.RouteMatch{Prefix: new("/a")})},
		{"path", matching(`"path":"/a/b"`), where(resource.RouteMatch{Path: new("/a/b")})},
		{"safe_regex", matching(`"safe_regex":{"regex":"/a|/b"}`), where(resource.RouteMatch{Regex: whole("/a|/b")})},
		{"case counts", matching(`"prefix":"/a"`, `"case_sensitive":true`), where(resource.RouteMatch{Prefix: new("/a")})},
		{"case does not count", matching(`"path":"/a"`, `"case_sensitive":false`), where(resource.RouteMatch{Path: new("/a"), CaseInsensitive: true})},

		{"exact_match", onHeader(`"exact_match":"V"`), text(resource.StringMatch{Value: "V"})},
		{"exact_match, empty", onHeader(`"exact_match":""`), text(resource.StringMatch{})},
		{"prefix_match", onHeader(`"prefix_match":"V"`), text(resource.StringMatch{Kind: resource.MatchPrefix, Value: "V"})},
		{"suffix_match", onHeader(`"suffix_match":"V"`), text(resource.StringMatch{Kind: resource.MatchSuffix, Value: "V"})},
		{"contains_match", onHeader(`"contains_match":"V"`), text(resource.StringMatch{Kind: resource.MatchContains, Value: "V"})},
		{"safe_regex_match", onHeader(`"safe_regex_match":{"regex":"a*"}`), text(resource.StringMatch{Kind: resource.MatchRegex, Regex: whole("a*")})},
		{"string_match exact", onHeader(`"string_match":{"exact":"V"}`), text(resource.StringMatch{Value: "V"})},
		{"string_match, whatever its case", onHeader(`"string_match":{"prefix":"V","ignore_case":true}`), text(resource.StringMatch{Kind: resource.MatchPrefix, Value: "v", CaseInsensitive: true})},
		{"string_match suffix", onHeader(`"string_match":{"suffix":"V"}`), text(resource.StringMatch{Kind: resource.MatchSuffix, Value: "V"})},
		{"string_match contains", onHeader(`"string_match":{"contains":"V"}`), text(resource.StringMatch{Kind: resource.MatchContains, Value: "V"})},
		{"string_match safe_regex", onHeader(`"string_match":{"safe_regex":{"regex":"a*"}}`), text(resource.StringMatch{Kind: resource.MatchRegex, Regex: whole("a*")})},
		{"range_match", onHeader(`"range_match":{"start":-1,"end":7}`), header(resource.HeaderMatch{Kind: resource.HeaderRange, RangeStart: -1, RangeEnd: 7})},
		{"present_match", onHeader(`"present_match":true`), header(resource.HeaderMatch{Kind: resource.HeaderPresent, Present: true})},
		{"present_match: false, inverted", onHeader(`"present_match":false,"invert_match":true`), header(resource.HeaderMatch{Kind: resource.HeaderPresent, Invert: true})},

		{"fraction of a hundred", onFraction(`{"numerator":25}`), fraction(250_000)},
		{"fraction of ten thousand", onFraction(`{"numerator":25,"denominator":"TEN_THOUSAND"}`), fraction(2500)},
		{"fraction of a million", onFraction(`{"numerator":25,"denominator":"MILLION"}`), fraction(25)},

		{"weights", acting(`"weighted_clusters":{"clusters":[{"name":"a","weight":1},{"name":"b","weight":3}]}`), &resource.Route{
			Match: all, Clusters: []resource.WeightedCluster{{Name: "a", Weight: 1}, {Name: "b", Weight: 3}}, TotalWeight: 4,
		}},
		{"the largest weights", acting(fmt.Sprintf(`"weighted_clusters":{"clusters":[{"name":"a","weight":1},{"name":"b","weight":%d}]}`, math.MaxUint32-1)), &resource.Route{
			Match: all, Clusters: []resource.WeightedCluster{{Name: "a", Weight: 1}, {Name: "b", Weight: math.MaxUint32 - 1}}, TotalWeight: math.MaxUint32,
		}},

		{"hash of a header", hashing(`{"header":{"header_name":"X-User"},"terminal":true}`), hashed(resource.HashPolicy{Header: "x-user", Terminal: true})},
		{
			"hash of a rewritten header", hashing(`{"header":{"header_name":"x","regex_rewrite":{"pattern":{"regex":"a(.)"},"substitution":"$1"}}}`),
			hashed(resource.HashPolicy{Header: "x", Regex: regexp.MustCompile("a(.)"), Substitution: "$1"}),
		},
		{"hash of the channel", hashing(`{"filter_state":{"key":"io.grpc.channel_id"}}`), hashed(resource.HashPolicy{})},

		{"named", `{"name":"n",` + acting(`"cluster":"a"`)[1:], &resource.Route{Name: "n", Match: all, Clusters: to("a").Clusters, TotalWeight: 1}},
		{"redirect", `{"match":{"prefix":""},"redirect":{}}`, noCluster("redirect")},
		{"direct_response", `{"match":{"prefix":""},"direct_response":{"status":404}}`, noCluster("direct_response")},
		{"non_forwarding_action", `{"match":{"prefix":""},"non_forwarding_action":{}}`, noCluster("non_forwarding_action")},
		{"query parameters", matching(`"prefix":""`, `"query_parameters":[{"name":"q"}]`), nil},
		{"query parameters, before anything is judged", matching(`"query_parameters":[{"name":"q"}]`), nil},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			t.Run(fmt.Sprintf("%d/%s", origin, c.name), func(t *testing.T) {
				d := accept(t, resource.TypeRoutes, routes(c.body, acting(`"cluster":"last"`)), decode.Options{Origin: origin})
				want := &resource.RouteConfiguration{Name: "r", VirtualHosts: []*resource.VirtualHost{{Name: "v", Domains: []string{"*"}, Routes: []*resource.Route{to("last")}}}}
				want.VirtualHosts[0].Routes[0].Index = 1
				if c.want != nil {
					want.VirtualHosts[0].Routes = append([]*resource.Route{c.want}, want.VirtualHosts[0].Routes...)
				}
				if !reflect.DeepEqual(d.Routes, want) {
					t.Errorf("routes %s, want %s", spellRoutes(d.Routes), spellRoutes(want))
				}
			})
		}
	}
}

// spellRoutes writes out what a %+v shows as pointers.
func spellRoutes(c *resource.RouteConfiguration) string {
	var b strings.Builder
	for _, h := range c.VirtualHosts {
		for _, r := range h.Routes {
			fmt.Fprintf(&b, "%s: %+v; ", r.Match.Words(), *r)
		}
	}
	return b.String()
}

// TestRulesOfRoutes: what is rejected, and the warnings about what is not.
func TestRulesOfRoutes(t *testing.T) {
	const at = "virtual_hosts[0].routes[0]."
	onHeader := func(h string) string { return routes(matching(`"prefix":""`, `"headers":[`+h+`]`)) }
	override := func(config string) string {
		return routes(`{"typed_per_filter_config":{"f":` + config + `},` + acting(`"cluster":"a"`)[1:])
	}
	retry := func(policy string) string { return routes(acting(`"cluster":"a"`, `"retry_policy":`+policy)) }
	noEffect := "! " + at + "typed_per_filter_config: has no effect: picks pass no HTTP filters"
	const routeConfig = `"@type":"type.googleapis.com/envoy.config.route.v3.FilterConfig"`
	const unknownFilter = `is "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy", a filter that is not supported: leave it out, or set is_optional`

	testRules(t, resource.TypeRoutes, []ruleCase{
		{"no virtual host", hosts(), []string{"! virtual_hosts: is empty: no target has routes"}},
		{
			"no domain", hosts(`{"routes":[` + acting(`"cluster":"a"`) + `]}`),
			[]string{`hand: virtual_hosts[0].domains: is empty, so that it serves no target: write the targets' names, or "*" for all`},
		},
		{
			"bad domains", hosts(`{"domains":["","a*b","*a*","**","ok"],"routes":[` + acting(`"cluster":"a"`) + `]}`),
			[]string{
				"hand: virtual_hosts[0].domains[0]: is empty",
				`hand: virtual_hosts[0].domains[1]: is "a*b": the * may be at the beginning or at the end, once`,
				`hand: virtual_hosts[0].domains[2]: is "*a*": the * may be at the beginning or at the end, once`,
				`hand: virtual_hosts[0].domains[3]: is "**": the * may be at the beginning or at the end, once`,
			},
		},
		{
			"the same domain", hosts(virtualHost(acting(`"cluster":"a"`)), virtualHost(acting(`"cluster":"a"`))),
			[]string{`hand: virtual_hosts[1].domains[0]: duplicate domain "*" (also virtual_hosts[0].domains[0])`},
		},
		{
			"the same name", hosts(virtualHost(acting(`"cluster":"a"`)), `{"name":"v","domains":["x"],"routes":[`+acting(`"cluster":"a"`)+`]}`),
			[]string{`! virtual_hosts[1].name: duplicate name "v" (also virtual_hosts[0])`},
		},
		{"no route", routes(), []string{"! virtual_hosts[0].routes: match no request: picks of its targets fail"}},
		{
			"never reached", routes(acting(`"cluster":"a"`), acting(`"cluster":"b"`)),
			[]string{"! virtual_hosts[0].routes[1]: is never reached: routes[0] takes all requests"},
		},
		{
			"fields that are not applied", routes(`{"match":{"prefix":"","grpc":{}},"route":{"cluster":"a","timeout":"1s"},"tracing":{}}`),
			[]string{"! " + at + "tracing: " + notApplied, "! " + at + "match.grpc: " + notApplied, "! " + at + "route.timeout: " + notApplied + ": lbd sends no requests"},
		},

		{
			"no match", routes(`{"route":{"cluster":"a"}}`),
			[]string{at + `match: is absent: write match: {prefix: ""} to take all requests`},
		},
		{
			"no path", routes(matching(`"case_sensitive":true`)),
			[]string{at + `match: has no path: write prefix: "" to take all requests`},
		},
		{
			"path_separated_prefix", routes(matching(`"path_separated_prefix":"/a"`)),
			[]string{at + `match.path_separated_prefix: is not supported: write two routes, path: "/a" and prefix: "/a/"`},
		},
		{
			"connect_matcher", routes(matching(`"connect_matcher":{}`)),
			[]string{at + "match.connect_matcher: is not supported: supported are prefix, path and safe_regex"},
		},
		{
			"a path that no request has", routes(matching(`"prefix":"a"`), matching(`"path":""`)),
			[]string{
				"! " + at + `match.prefix: is "a", and takes nothing: paths begin with /`,
				`! virtual_hosts[0].routes[1].match.path: is "", and takes nothing: paths begin with /`,
			},
		},
		{
			"a bad regex", routes(matching(`"safe_regex":{"regex":"a("}`)),
			[]string{at + "match.safe_regex.regex: is no regular expression of RE2: missing closing ): `a(`"},
		},
		{"an empty regex", routes(matching(`"safe_regex":{}`)), []string{"hand: " + at + "match.safe_regex.regex: is empty"}},
		{
			"conditions that cannot be met", routes(matching(`"prefix":""`, `"tls_context":{}`, `"dynamic_metadata":[{"filter":"f"}]`)),
			[]string{
				"hand: " + at + "match.tls_context: not supported: picks have no such attribute, so the route would match too many requests",
				"hand: " + at + "match.dynamic_metadata: not supported: picks have no such attribute, so the route would match too many requests",
			},
		},
		{
			"query parameters", routes(matching(`"prefix":""`, `"query_parameters":[{"name":"q"}]`)),
			[]string{
				"! " + at + "match.query_parameters: is not supported: the route is left out, as gRPC leaves it out",
				"! virtual_hosts[0].routes: match no request: picks of its targets fail",
			},
		},

		{"a header without condition", onHeader(`{"name":"x"}`), []string{at + "match.headers[0]: has no condition: write present_match: true, or what the header must be"}},
		{"an empty string_match", onHeader(`{"name":"x","string_match":{}}`), []string{at + "match.headers[0].string_match: is none of exact, prefix, suffix, contains and safe_regex"}},
		{
			"nothing to compare with", onHeader(`{"name":"x","prefix_match":""},{"name":"x","suffix_match":""},{"name":"x","contains_match":""},` +
				`{"name":"x","string_match":{"prefix":""}},{"name":"x","string_match":{"suffix":""}},{"name":"x","string_match":{"contains":""}}`),
			emptyHeaders(at),
		},
		{
			"names of headers", onHeader(`{"name":"","present_match":true},{"name":"a b","present_match":true}`),
			[]string{
				"hand: " + at + "match.headers[0].name: is empty",
				"hand: " + at + `match.headers[1].name: is "a b", which is no name of a header`,
			},
		},
		{
			"headers that are never there", onHeader(`{"name":":path","present_match":true},{"name":"x-Bin","present_match":true}`),
			[]string{
				"! " + at + `match.headers[0].name: is ":path": a pick never has it, as no RPC's metadata does`,
				"! " + at + `match.headers[1].name: is "x-bin": binary headers count as absent`,
			},
		},
		{
			"conditions of little sense", onHeader(`{"name":"x","range_match":{"start":7,"end":7},"treat_missing_header_as_empty":true},{"name":"y","string_match":{"safe_regex":{"regex":"a"},"ignore_case":true}}`),
			[]string{
				"! " + at + "match.headers[0].treat_missing_header_as_empty: is not applied: an absent header meets no condition but present_match",
				"! " + at + "match.headers[0].range_match: holds no number: end is exclusive, and must be above start",
				"! " + at + "match.headers[1].string_match.ignore_case: is not applied: write (?i) in the regular expression",
			},
		},
		{"bad regexes of headers", onHeader(`{"name":"x","safe_regex_match":{"regex":"["}},{"name":"x","string_match":{"safe_regex":{"regex":"["}}}`), badRegexes(at)},
		{
			"too many headers", onHeader(strings.TrimSuffix(strings.Repeat(`{"name":"x","present_match":true},`, 101), ",")),
			[]string{"hand: " + at + "match.headers: holds 101 headers, of at most 100"},
		},

		{
			"a runtime key", routes(matching(`"prefix":""`, `"runtime_fraction":{"runtime_key":"k","default_value":{"numerator":1}}`)),
			[]string{"! " + at + "match.runtime_fraction.runtime_key: is not applied: default_value counts"},
		},
		{"a fraction of nothing", routes(matching(`"prefix":""`, `"runtime_fraction":{"runtime_key":"k"}`)), []string{"hand: " + at + "match.runtime_fraction.default_value: is absent: the route would take no request"}},
		{
			"an unknown denominator", routes(matching(`"prefix":""`, `"runtime_fraction":{"default_value":{"numerator":1,"denominator":7}}`)),
			[]string{"hand: " + at + "match.runtime_fraction.default_value.denominator: is 7, which is none of HUNDRED, TEN_THOUSAND, MILLION"},
		},
		{
			"more than all", routes(matching(`"prefix":""`, `"runtime_fraction":{"default_value":{"numerator":4294967295}}`)),
			[]string{"! " + at + "match.runtime_fraction.default_value.numerator: is 4294967295 of 100: taken as all of them"},
		},

		{
			"no action", routes(`{"match":{"prefix":""}}`), []string{"hand: virtual_hosts[0].routes[0]: does nothing: write route: {cluster: …}"},
		},
		{
			"a redirect", routes(`{"match":{"prefix":""},"redirect":{}}`),
			[]string{"! " + at + "redirect: is not supported: picks that match the route fail"},
		},
		{"no cluster", routes(acting(`"timeout":"1s"`)), []string{"hand: " + at + "route: has no cluster: write cluster or weighted_clusters"}},
		{"cluster_header", routes(acting(`"cluster_header":"x"`)), []string{"hand: " + at + "route.cluster_header: is not supported: write cluster or weighted_clusters"}},
		{"an empty cluster", routes(acting(`"cluster":""`)), []string{"hand: " + at + "route.cluster: is empty"}},
		{"a reserved cluster", routes(acting(`"cluster":"_other"`)), []string{"hand: " + at + `route.cluster: is "_other", which is reserved: metrics use it for the clusters without series of their own`}},
		{
			"weights of nothing", routes(acting(`"weighted_clusters":{"clusters":[{"name":"a"},{"name":"b","weight":0}]}`)),
			[]string{at + "route.weighted_clusters.clusters: holds no cluster with a weight above 0"},
		},
		{
			"weights of nothing beside one", routes(acting(`"weighted_clusters":{"clusters":[{"name":"a"},{"name":"b","weight":0},{"name":"c","weight":1}],"total_weight":1}`)),
			[]string{
				"! " + at + "route.weighted_clusters.total_weight: " + notApplied + ": it is the sum of the weights",
				"! " + at + "route.weighted_clusters.clusters[0].weight: is absent: the cluster is left out",
				"! " + at + "route.weighted_clusters.clusters[1].weight: is 0: the cluster is left out",
			},
		},
		{
			"weights over uint32", routes(acting(fmt.Sprintf(`"weighted_clusters":{"clusters":[{"name":"a","weight":1},{"name":"b","weight":%d},{"name":"c","weight":1}]}`, uint32(math.MaxUint32)))),
			[]string{at + "route.weighted_clusters.clusters[1].weight: makes the sum of the weights exceed 4294967295"},
		},
		{
			"a cluster_header with a weight", routes(acting(`"weighted_clusters":{"clusters":[{"cluster_header":"x","weight":1}],"total_weight":1}`)),
			[]string{"hand: " + at + "route.weighted_clusters.clusters[0].cluster_header: is not supported: write name"},
		},

		{
			"hash policies that gRPC has not", routes(acting(`"cluster":"a"`, `"hash_policy":[{"cookie":{"name":"c"}},{"filter_state":{"key":"k"}},{"header":{}},{}]`)),
			[]string{"hand: " + at + "route.hash_policy[2].header.header_name: is empty"},
		},
		{
			"hash policies that gRPC passes over", routes(acting(`"cluster":"a"`, `"hash_policy":[{"cookie":{"name":"c"}},{"filter_state":{"key":"k"}},{},{"header":{"header_name":"x","regex_rewrite":{"pattern":{"regex":"a"},"substitution":"\\1"}}}]`)),
			[]string{
				"! " + at + "route.hash_policy[0]: is not applied: supported are header and filter_state",
				"! " + at + `route.hash_policy[1].filter_state.key: is "k", and not applied: known is io.grpc.channel_id`,
				"! " + at + "route.hash_policy[2]: is not applied: supported are header and filter_state",
				"! " + at + `route.hash_policy[3].header.regex_rewrite.substitution: is taken as gRPC-Go takes it: write ${1} for the first group, where Envoy has \1`,
			},
		},
		{
			"a bad rewrite", routes(acting(`"cluster":"a"`, `"hash_policy":[{"header":{"header_name":"x","regex_rewrite":{"pattern":{"regex":"*"},"substitution":"\\1"}}}]`)),
			[]string{
				at + "route.hash_policy[0].header.regex_rewrite.pattern.regex: is no regular expression of RE2: missing argument to repetition operator: `*`",
			},
		},
		{
			"a bad rewrite of a route that is left out", routes(acting(`"cluster_header":"x"`, `"hash_policy":[{"header":{"header_name":"x","regex_rewrite":{"pattern":{"regex":"*"}}}}]`), acting(`"cluster":"a"`)),
			[]string{
				at + "route.hash_policy[0].header.regex_rewrite.pattern.regex: is no regular expression of RE2: missing argument to repetition operator: `*`",
				"hand: " + at + "route.cluster_header: is not supported: write cluster or weighted_clusters",
			},
		},

		{"retries", retry(`{}`), []string{"! " + at + "route.retry_policy: is not applied: callers of the pick API retry"}},
		{"bad retries", retry(`{"num_retries":0,"retry_back_off":{"max_interval":"0s"}}`), badRetries(at)},
		{
			"bad retries of a virtual host", hosts(`{"domains":["*"],"retry_policy":{"retry_back_off":{"base_interval":"-1s"}},"routes":[` + acting(`"cluster":"a"`) + `]}`),
			[]string{"virtual_hosts[0].retry_policy.retry_back_off.base_interval: is not above 0s"},
		},
		{"bad retries of a route that is left out", routes(acting(`"cluster_header":"x"`, `"retry_policy":{"num_retries":0}`)), []string{
			"hand: " + at + "route.cluster_header: is not supported: write cluster or weighted_clusters", "hand: " + badRetries(at)[0],
		}},

		{"a fault for a route", override(filter(fault)), []string{noEffect}},
		{
			"a filter that gRPC has not, for a route", override(filter(cors)),
			[]string{at + `typed_per_filter_config["f"]: ` + unknownFilter},
		},
		{
			"an optional one", override(`{` + routeConfig + `,"is_optional":true,"config":` + filter(cors) + `}`),
			[]string{noEffect, "! " + at + `typed_per_filter_config["f"].config: is "CorsPolicy", which is not supported, and skipped`},
		},
		{
			"one that is not optional", override(`{` + routeConfig + `,"config":` + filter(cors) + `}`),
			[]string{at + `typed_per_filter_config["f"].config: ` + unknownFilter},
		},
		{
			"a router for a route", override(filter(router)),
			[]string{at + `typed_per_filter_config["f"]: is a Router, which does not support overrides`},
		},
		{"a RBAC for a route", override(filter(rbacPer)), []string{noEffect}},
		{
			"a RBAC of a listener for a route", override(filter(rbac)),
			[]string{at + `typed_per_filter_config["f"]: ` + wantsPerRoute},
		},
		{
			"filters elsewhere", hosts(`{"domains":["*"],"typed_per_filter_config":{"f":` + filter(cors) + `},"routes":[` +
				acting(`"weighted_clusters":{"clusters":[{"name":"a","weight":1,"typed_per_filter_config":{"f":`+filter(cors)+`}}]}`) + `]}`),
			[]string{
				at + `route.weighted_clusters.clusters[0].typed_per_filter_config["f"]: ` + unknownFilter,
				`virtual_hosts[0].typed_per_filter_config["f"]: ` + unknownFilter,
			},
		},
		{
			"filters of a route that is left out", routes(`{"typed_per_filter_config":{"f":` + filter(cors) + `},` + matching(`"prefix":""`, `"query_parameters":[{"name":"q"}]`)[1:]),
			[]string{
				"! " + at + "match.query_parameters: is not supported: the route is left out, as gRPC leaves it out",
				"! virtual_hosts[0].routes: match no request: picks of its targets fail",
			},
		},

		{
			"a plugin that is not there", routes(acting(`"cluster_specifier_plugin":"p"`)),
			[]string{at + `route.cluster_specifier_plugin: is "p", which is none of cluster_specifier_plugins`},
		},
		{
			"a plugin that gRPC has not", plugin("", filter(cors)),
			[]string{"cluster_specifier_plugins[0].extension.typed_config: " + noPlugin},
		},
		{"an optional one that gRPC has not", plugin(`"is_optional":true,`, filter(cors)), []string{
			"! cluster_specifier_plugins[0]: is not supported: the routes that use it are left out",
			"! virtual_hosts[0].routes: match no request: picks of its targets fail",
		}},
	})
}

// ruleCase is a body and what a decoder reports about it: the problems, or else the
// warnings and the notes, which begin with "! " and "note: ". These, and what begins with
// "hand: ", are only reported by hand.
type ruleCase struct {
	name, body string
	want       []string
}

func testRules(t *testing.T, kind resource.Type, cases []ruleCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var byHand, fromServer []string
			for _, line := range c.want {
				rest, only := strings.CutPrefix(line, "hand: ")
				byHand = append(byHand, rest)
				if !only && !strings.HasPrefix(line, "! ") && !strings.HasPrefix(line, "note: ") {
					fromServer = append(fromServer, line)
				}
			}
			expect(t, "by hand", reported(decode.One(kind, []byte(c.body), decode.Options{})), byHand)
			expect(t, "from a server", reported(decode.One(kind, []byte(c.body), decode.Options{Origin: decode.FromServer})), fromServer)
		})
	}
}

const (
	wantsPerRoute = `is "type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC", where a envoy.extensions.filters.http.rbac.v3.RBACPerRoute is wanted`
	noPlugin      = `is "type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy", which is not supported: write cluster or weighted_clusters in the routes`
)

// plugin is the JSON of a RouteConfiguration whose one route uses a plugin.
func plugin(optional, config string) string {
	return `{"name":"r","cluster_specifier_plugins":[{` + optional + `"extension":{"name":"p","typed_config":` + config + `}}],` +
		strings.TrimPrefix(routes(acting(`"cluster_specifier_plugin":"p"`)), `{"name":"r",`)
}

func emptyHeaders(at string) []string {
	var want []string
	for i, field := range []string{"prefix_match", "suffix_match", "contains_match"} {
		want = append(want, fmt.Sprintf("%smatch.headers[%d].%s: is empty: write present_match: true for a header that only must be there", at, i, field))
	}
	for i, field := range []string{"prefix", "suffix", "contains"} {
		want = append(want, fmt.Sprintf("%smatch.headers[%d].string_match.%s: is empty", at, i+3, field))
	}
	return want
}

func badRegexes(at string) []string {
	const reason = "is no regular expression of RE2: missing closing ]: `[`"
	return []string{at + "match.headers[0].safe_regex_match.regex: " + reason, at + "match.headers[1].string_match.safe_regex.regex: " + reason}
}

func badRetries(at string) []string {
	return []string{
		at + "route.retry_policy.num_retries: is 0: it must be at least 1",
		at + "route.retry_policy.retry_back_off.base_interval: is not above 0s",
		at + "route.retry_policy.retry_back_off.max_interval: is not above 0s",
	}
}

// reported returns the problems, or else the warnings and notes, as in a ruleCase.
func reported(d *decode.Decoded, err error) []string {
	if invalid, ok := errors.AsType[*decode.InvalidError](err); ok {
		return lines(invalid.Problems)
	}
	if err != nil {
		return []string{err.Error()}
	}
	all := lines(d.Warnings)
	for i := range all {
		all[i] = "! " + all[i]
	}
	return append(all, noted(d.Notes)...)
}
