package decode_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

const managerType = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

// manager is the JSON of a connection manager with these fields.
func manager(fields ...string) string {
	return "{" + strings.Join(append([]string{`"@type":"` + managerType + `"`}, fields...), ",") + "}"
}

// api is the JSON of the API listener l, whose connection manager has these
// fields.
func api(fields ...string) string {
	return `{"name":"l","api_listener":{"api_listener":` + manager(fields...) + `}}`
}

// filters is the JSON of http_filters with these configurations, called f0, f1 …
func filters(configs ...string) string {
	for i, c := range configs {
		configs[i] = `{"name":"f` + string(rune('0'+i)) + `","typed_config":` + c + `}`
	}
	return `"http_filters":[` + strings.Join(configs, ",") + `]`
}

func optional(name, config string) string {
	return `{"name":"` + name + `","is_optional":true,"typed_config":` + config + `}`
}

const (
	rds    = `"rds":{"config_source":{"ads":{}},"route_config_name":"r"}`
	in     = "api_listener.api_listener."
	routed = "{\"@type\":\"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router\"}"
)

func TestListenersAreRead(t *testing.T) {
	serving := func(body string) *resource.RouteConfiguration {
		d := accept(t, resource.TypeRoutes, body, decode.Options{Origin: decode.FromServer})
		return d.Routes
	}
	inline := serving(routes(acting(`"cluster":"a"`)))
	for name, c := range map[string]struct {
		body string
		want *resource.Listener
	}{
		"rds":            {api(rds, filters(routed)), &resource.Listener{Name: "l", RouteName: "r"}},
		"rds from self":  {api(`"rds":{"config_source":{"self":{}},"route_config_name":"r"}`, filters(routed)), &resource.Listener{Name: "l", RouteName: "r"}},
		"inline":         {api(`"route_config":`+routes(acting(`"cluster":"a"`)), filters(routed)), &resource.Listener{Name: "l", Routes: inline}},
		"a fault filter": {api(rds, filters(filter(fault), routed)), &resource.Listener{Name: "l", RouteName: "r"}},
	} {
		for _, origin := range []decode.Origin{decode.ByHand, decode.FromServer} {
			d, err := decode.One(resource.TypeListener, []byte(c.body), decode.Options{Origin: origin})
			if err != nil || !reflect.DeepEqual(d.Listener, c.want) {
				t.Errorf("%s: %+v, %v", name, d, err)
			}
		}
	}
	if inline := serving(`{"name":"r","virtual_hosts":[]}`); inline.Name != "r" {
		t.Errorf("routes %+v", inline)
	}
}

func TestRulesOfListeners(t *testing.T) {
	const (
		url      = "type.googleapis.com/envoy.extensions.filters.http."
		last     = "and must be the router (" + url + "router.v3.Router)"
		none     = "http_filters: holds no filter that is supported: the last must be the router (" + url + "router.v3.Router)"
		notKnown = `typed_config: is "` + url + `cors.v3.CorsPolicy", a filter that is not supported: leave it out, or set is_optional`
		client   = `typed_config: is "` + url + `rbac.v3.RBAC", which has no place in a client's listener`
		written  = `write api_listener: {api_listener: {"@type": "` + managerType + `", route_config: {…}}}, or rds in the place of route_config`
		typed    = `{"@type":"type.googleapis.com/xds.type.v3.TypedStruct","type_url":"` + url
	)
	both := func(words ...string) [2][]string { return [2][]string{words, words} }
	named := func(list ...string) string { return `"http_filters":[` + strings.Join(list, ",") + `]` }
	for _, c := range []struct {
		name string
		body string
		want [2][]string // by origin
	}{
		{"no name", `{` + api(rds, filters(routed))[len(`{"name":"l",`):], both("name: is empty")},
		{"no api_listener, by hand", `{"name":"l","address":{"socket_address":{"address":"::","port_value":80}},"filter_chains":[` + chain(``) + `]}`, [2][]string{
			{"api_listener: is absent, which makes it the listener of a server's port, and lbd picks for clients: " + written}, nil,
		}},
		{"fields of a port", `{"stat_prefix":"s",` + api(rds, filters(routed))[1:], [2][]string{{"! stat_prefix: is not applied"}, nil}},
		{
			"no connection manager", `{"name":"l","api_listener":{"api_listener":` + routed + `}}`,
			both(in + `@type: is "` + url + `router.v3.Router", and must be an HttpConnectionManager: ` + written),
		},
		{"nothing at all", `{"name":"l","api_listener":{}}`, both(in + `@type: is "", and must be an HttpConnectionManager: ` + written)},
		{"no routes", api(filters(routed)), both("api_listener.api_listener: has no routes: write route_config, or rds: {route_config_name: …}")},
		{"scoped routes", api(filters(routed), `"scoped_routes":{}`), both(in + "scoped_routes: is not supported: supported are route_config and rds")},
		{"rds without name", api(filters(routed), `"rds":{"config_source":{"ads":{}}}`), both(in + "rds.route_config_name: is empty")},
		{"rds from nowhere", api(filters(routed), `"rds":{"route_config_name":"r"}`), [2][]string{nil, {in + "rds.config_source: is absent: it must be ads or self"}}},
		{"rds from a file", api(filters(routed), `"rds":{"config_source":{"path_config_source":{"path":"p"}},"route_config_name":"r"}`), [2][]string{
			{"! " + in + "rds.config_source.path_config_source: is not read: the RouteConfiguration is the one that is pushed, in lbd's own files, or from a management server"},
			{in + "rds.config_source: is path_config_source: it must be ads or self"},
		}},
		{"rds from another server", api(filters(routed), `"rds":{"config_source":{"api_config_source":{}},"route_config_name":"r"}`), both(in + "rds.config_source: is api_config_source: it must be ads or self")},
		{"bad inline routes", api(filters(routed), `"route_config":`+routes(`{"route":{"cluster":"a"}}`)), both(in + `route_config.virtual_hosts[0].routes[0].match: is absent: write match: {prefix: ""} to take all requests`)},
		{"trusted hops", api(rds, filters(routed), `"xff_num_trusted_hops":1`), both(in + "xff_num_trusted_hops: is 1: it must be 0 or absent")},
		{"original addresses", api(rds, filters(routed), `"original_ip_detection_extensions":[{"name":"x"}]`), both(in + "original_ip_detection_extensions: is not supported")},
		{"what a manager has besides", api(rds, filters(routed), `"stat_prefix":"s","server_name":"n"`), [2][]string{{"! " + in + "server_name: is not applied", "! " + in + "stat_prefix: is not applied: lbd's metrics are called by cluster and target"}, nil}},

		{"no filters", api(rds), [2][]string{{"note: " + in + "http_filters: is absent: taken as the router alone"}, {in + none}}},
		{"a fault filter", api(rds, filters(filter(fault), routed)), [2][]string{{"! " + in + "http_filters[0]: is HTTPFault, and has no effect: picks pass no HTTP filters"}, nil}},
		{"no router", api(rds, filters(filter(fault))), both(in + "http_filters[0]: is the last filter, " + last)},
		{"two routers", api(rds, filters(routed, routed)), both(in + "http_filters[0]: is Router, which must be the last filter")},
		{"a filter that gRPC has not", api(rds, filters(filter(cors), routed)), both(in + "http_filters[0]." + notKnown)},
		{"an optional one", api(rds, named(optional("a", filter(cors)), optional("b", routed))), [2][]string{{"! " + in + `http_filters[0].typed_config: is "CorsPolicy", which is not supported, and skipped`}, nil}},
		{"optional ones alone", api(rds, named(optional("a", filter(cors)))), both(in + none)},
		{"a filter without name", api(rds, named(`{"typed_config":`+routed+`}`)), both(in + "http_filters[0].name: is empty")},
		{"the same name", api(rds, named(optional("a", filter(cors)), optional("a", routed))), both(in + `http_filters[1].name: is "a", as that of another filter is`)},
		{"a filter without configuration", api(rds, named(`{"name":"a"}`)), both(in+`http_filters[0].typed_config: is "", a filter that is not supported: leave it out, or set is_optional`, in+none)},
		{"a server's filter", api(rds, filters(filter(rbac), routed)), both(in + "http_filters[0]." + client)},
		{"an optional filter of a server", api(rds, named(optional("a", filter(rbac)), optional("b", routed))), [2][]string{}},
		{"a RBAC for a route", api(rds, filters(filter(rbacPer), routed)), both(in + `http_filters[0].typed_config: is "` + url + `rbac.v3.RBACPerRoute", where a envoy.extensions.filters.http.rbac.v3.RBAC is wanted`)},
		{"a bad optional RBAC", api(rds, named(optional("a", filter(rbac, `"rules":{"policies":{"p":{"condition":{},"permissions":[{"and_rules":{"rules":[{"header":{"name":"Grpc-x","present_match":true}}]}}],"principals":[{"not_id":{"header":{"name":":scheme","present_match":true}}}]}}}`)), optional("b", routed))), both(
			in+`http_filters[0].typed_config.rules.policies["p"].condition: is not supported`,
			in+`http_filters[0].typed_config.rules.policies["p"].permissions[0]: uses the header grpc-x, which no policy may`,
			in+`http_filters[0].typed_config.rules.policies["p"].principals[0]: uses the header :scheme, which no policy may`,
		)},
		{"a struct of a filter", api(rds, filters(typed+`fault.v3.HTTPFault"}`, routed)), both(in + "http_filters[0].typed_config: is a TypedStruct: write the HTTPFault itself")},
		{"a struct of a filter that gRPC has not", api(rds, named(optional("a", typed+`x.X"}`), optional("b", routed))), [2][]string{{"! " + in + `http_filters[0].typed_config: is "X", which is not supported, and skipped`}, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for origin, want := range c.want {
				expect(t, fmt.Sprintf("origin %d", origin), reported(decode.One(resource.TypeListener, []byte(c.body), decode.Options{Origin: decode.Origin(origin)})), want)
			}
		})
	}
}

// chain is the JSON of a filter chain with a connection manager, and further
// fields.
func chain(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"filters":[{"name":"m","typed_config":` + manager(rds, filters(routed)) + `}]` + more + `}`
}

// port is the JSON of a server's listener with these fields.
func port(fields ...string) string {
	return "{" + strings.Join(append([]string{`"name":"l","address":{"socket_address":{"address":"::","port_value":80}}`}, fields...), ",") + "}"
}

func chains(list ...string) string { return `"filter_chains":[` + strings.Join(list, ",") + `]` }

func match(fields string) string { return `"filter_chain_match":{` + fields + `}` }

// downstream is the JSON of a transport_socket of a server's chain.
func downstream(fields string) string {
	return `"transport_socket":{"name":"envoy.transport_sockets.tls","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",` + fields + `}}`
}

// TestRulesOfServerListeners: they come from management servers, and are
// refused where gRPC's clients refuse them.
func TestRulesOfServerListeners(t *testing.T) {
	const (
		inChain  = "filter_chains[0]."
		tls      = inChain + "transport_socket.typed_config."
		identity = `"tls_certificate_provider_instance":{"instance_name":"known"}`
		noChain  = "filter_chains: holds no chain that is supported, and default_filter_chain is absent"
		twice    = "filter_chains[1].filter_chain_match: matches what another chain matches"
	)
	with := func(fields string) string { return port(chains(chain(fields))) }
	managed := func(fields ...string) string {
		return port(chains(`{"filters":[{"name":"m","typed_config":` + manager(fields...) + `}]}`))
	}
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"a chain":                        {with(""), nil},
		"a default chain":                {port(`"default_filter_chain":` + chain("")), nil},
		"no chain":                       {port(), []string{noChain}},
		"no address":                     {`{"name":"l",` + chains(chain("")) + `}`, []string{"address.socket_address: is absent"}},
		"listener filters":               {port(chains(chain("")), `"listener_filters":[{"name":"f"}]`), []string{"listener_filters: holds 1 filters: none is supported"}},
		"original destination":           {port(chains(chain("")), `"use_original_dst":true`), []string{"use_original_dst: is true, which is not supported"}},
		"no original destination":        {port(chains(chain("")), `"use_original_dst":false`), nil},
		"a port of the destination":      {with(match(`"destination_port":1`)), []string{noChain}},
		"names":                          {with(match(`"server_names":["a"]`)), []string{noChain}},
		"protocols":                      {with(match(`"application_protocols":["h2"]`)), []string{noChain}},
		"a transport":                    {with(match(`"transport_protocol":"tls"`)), []string{noChain}},
		"raw_buffer":                     {with(match(`"transport_protocol":"raw_buffer"`)), nil},
		"raw_buffer goes before":         {port(chains(chain(""), chain(match(`"transport_protocol":"raw_buffer"`)))), nil},
		"raw_buffer took the place":      {port(chains(chain(match(`"transport_protocol":"raw_buffer"`)), chain(""), chain(""))), nil},
		"raw_buffer alone that is not":   {port(chains(chain(""), chain(match(`"transport_protocol":"raw_buffer","application_protocols":["h2"]`)))), []string{noChain}},
		"a source type":                  {with(match(`"source_type":9`)), []string{inChain + "filter_chain_match.source_type: is 9, which is not supported"}},
		"a prefix":                       {with(match(`"prefix_ranges":[{"address_prefix":"10.1.2.3","prefix_len":8}]`)), nil},
		"a prefix of nothing":            {with(match(`"prefix_ranges":[{"address_prefix":"a"}]`)), []string{inChain + `filter_chain_match.prefix_ranges[0].address_prefix: is "a", which is no IP address`}},
		"a long prefix":                  {with(match(`"prefix_ranges":[{"address_prefix":"10.0.0.0","prefix_len":33}]`)), []string{inChain + "filter_chain_match.prefix_ranges[0].prefix_len: is 33, of at most 32"}},
		"a long prefix of a source":      {with(match(`"source_prefix_ranges":[{"address_prefix":"::","prefix_len":129}]`)), []string{inChain + "filter_chain_match.source_prefix_ranges[0].prefix_len: is 129, of at most 128"}},
		"a bad prefix of a chain unused": {port(chains(chain(""), chain(match(`"server_names":["a"],"prefix_ranges":[{"address_prefix":"a"}]`)))), []string{`filter_chains[1].filter_chain_match.prefix_ranges[0].address_prefix: is "a", which is no IP address`}},
		"the same chain":                 {port(chains(chain(""), chain(""))), []string{twice}},
		"the same prefix":                {port(chains(chain(match(`"prefix_ranges":[{"address_prefix":"10.1.0.0","prefix_len":8}]`)), chain(match(`"prefix_ranges":[{"address_prefix":"::ffff:10.2.0.0","prefix_len":8}]`)))), []string{twice}},
		"other ports":                    {port(chains(chain(match(`"source_ports":[1,2]`)), chain(match(`"source_ports":[3]`)))), nil},
		"the same port":                  {port(chains(chain(match(`"source_ports":[1,2]`)), chain(match(`"source_ports":[2]`)))), []string{twice}},
		"other sources":                  {port(chains(chain(match(`"source_type":"EXTERNAL"`)), chain(match(`"source_type":"SAME_IP_OR_LOOPBACK"`)))), nil},

		"no filter":            {port(chains(`{}`)), []string{inChain + "filters: holds no HttpConnectionManager"}},
		"another filter":       {port(chains(`{"filters":[{"name":"r","typed_config":` + routed + `}]}`)), []string{inChain + `filters[0].typed_config: is "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router": the only network filter is the HttpConnectionManager`}},
		"a filter called none": {port(chains(`{"filters":[{"typed_config":` + manager(rds, filters(routed)) + `}]}`)), []string{inChain + "filters[0].name: is empty"}},
		"two called the same": {
			port(chains(`{"filters":[{"name":"m","typed_config":` + manager(rds, filters(routed)) + `},{"name":"m","typed_config":` + manager(filters(routed)) + `}]}`)),
			[]string{inChain + `filters[1].name: is "m", as that of another filter is`},
		},
		"routes from self":  {managed(filters(routed), `"rds":{"config_source":{"self":{}},"route_config_name":"r"}`), []string{inChain + "filters[0].typed_config.rds.config_source: is self: it must be ads"}},
		"no routes":         {managed(filters(routed)), []string{inChain + "filters[0].typed_config: has no routes: write route_config, or rds: {route_config_name: …}"}},
		"trusted hops":      {managed(rds, filters(routed), `"xff_num_trusted_hops":1`), []string{inChain + "filters[0].typed_config.xff_num_trusted_hops: is 1: it must be 0 or absent"}},
		"a RBAC":            {managed(rds, filters(filter(rbac), routed)), nil},
		"a client's filter": {managed(rds, filters(filter(fault), routed)), []string{inChain + `filters[0].typed_config.http_filters[0].typed_config: is "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault", which has no place in a server's listener`}},
		"no http filters":   {managed(rds), []string{inChain + "filters[0].typed_config.http_filters: holds no filter that is supported: the last must be the router (type.googleapis.com/envoy.extensions.filters.http.router.v3.Router)"}},

		"TLS":                      {with(downstream(`"common_tls_context":{` + identity + `}`)), nil},
		"TLS without certificate":  {with(downstream(`"common_tls_context":{}`)), []string{tls + "common_tls_context.tls_certificate_provider_instance: is absent"}},
		"TLS without context":      {with(downstream(`"require_sni":false`)), []string{tls + "common_tls_context: is absent"}},
		"SNI":                      {with(downstream(`"require_sni":true,"common_tls_context":{` + identity + `}`)), []string{tls + "require_sni: is true, which is not supported"}},
		"OCSP":                     {with(downstream(`"ocsp_staple_policy":"MUST_STAPLE","common_tls_context":{` + identity + `}`)), []string{tls + "ocsp_staple_policy: MUST_STAPLE is not supported"}},
		"client certificates":      {with(downstream(`"require_client_certificate":true,"common_tls_context":{` + identity + `}`)), []string{tls + "require_client_certificate: is true, where no certificate provider instance has the roots"}},
		"an unknown provider":      {with(downstream(`"common_tls_context":{"tls_certificate_provider_instance":{"instance_name":"x"}}`)), []string{tls + `common_tls_context: names the certificate provider instance "x", which the bootstrap does not have`}},
		"names of clients":         {with(downstream(`"common_tls_context":{` + identity + `,"validation_context":{"ca_certificate_provider_instance":{"instance_name":"known"},"match_subject_alt_names":[{"exact":"a"}]}}`)), []string{tls + "common_tls_context.validation_context.match_subject_alt_names: is not supported in a server's listener"}},
		"roots of the system":      {with(downstream(`"common_tls_context":{` + identity + `,"validation_context":{"system_root_certs":{}}}`)), []string{tls + "common_tls_context.validation_context.ca_certificate_provider_instance: required, unless system_root_certs is set"}},
		"another transport socket": {with(`"transport_socket":{"name":"x"}`), []string{inChain + `transport_socket.name: is "x": it must be "envoy.transport_sockets.tls"`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := decode.Options{Origin: decode.FromServer, Certificates: func(name string) (roots, identity, ok bool) { return true, true, name == "known" }}
			d, err := decode.One(resource.TypeListener, []byte(c.body), o)
			expect(t, "reported", reported(d, err), c.want)
			if want := (&resource.Listener{Name: "l", ServerSide: true}); err == nil && !reflect.DeepEqual(d.Listener, want) {
				t.Errorf("listener %+v", d.Listener)
			}
		})
	}
}
