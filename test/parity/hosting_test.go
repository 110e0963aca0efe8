package parity_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// resources are those of a node.
type resources struct {
	listener    *listenerv3.Listener // nil where there is none
	routes      *routev3.RouteConfiguration
	clusters    []*clusterv3.Cluster
	assignments []*endpointv3.ClusterLoadAssignment
}

var resourceTypes = []string{resourcev3.ListenerType, resourcev3.RouteType, resourcev3.ClusterType, resourcev3.EndpointType}

// all returns the resources by type, also of types without resources.
func (r resources) all() map[string][]types.Resource {
	var listeners, routes []types.Resource
	if r.listener != nil {
		listeners = append(listeners, r.listener)
	}
	if r.routes != nil {
		routes = append(routes, r.routes)
	}
	return map[string][]types.Resource{
		resourcev3.ListenerType: listeners, resourcev3.RouteType: routes,
		resourcev3.ClusterType: asResources(r.clusters), resourcev3.EndpointType: asResources(r.assignments),
	}
}

func (h *hosting) resources() resources {
	var out resources
	for _, w := range h.leaves {
		c, a := w.resources()
		out.clusters = append(out.clusters, c)
		if !h.withheld[w.cluster] {
			out.assignments = append(out.assignments, a)
		}
	}
	for _, a := range h.aggregates {
		out.clusters = append(out.clusters, a.resources(a.of)...)
	}
	out.clusters = slices.DeleteFunc(out.clusters, func(c *clusterv3.Cluster) bool { return h.deleted[c.GetName()] })
	if h.gone {
		return out
	}
	rc := &routev3.RouteConfiguration{
		Name:                    "inline",
		ClusterSpecifierPlugins: []*routev3.ClusterSpecifierPlugin{optionalPlugin},
	}
	for i := range h.hosts {
		rc.VirtualHosts = append(rc.VirtualHosts, h.hosts[i].resource())
	}
	manager := &managerv3.HttpConnectionManager{HttpFilters: []*managerv3.HttpFilter{router()}}
	if h.routesName == "" {
		manager.RouteSpecifier = &managerv3.HttpConnectionManager_RouteConfig{RouteConfig: rc}
	} else {
		rc.Name = h.routesName
		out.routes = rc
		manager.RouteSpecifier = &managerv3.HttpConnectionManager_Rds{
			Rds: &managerv3.Rds{ConfigSource: ads, RouteConfigName: h.routesName},
		}
	}
	if h.flaw != nil {
		set(h.flaw.part(manager, rc), h.flaw.json)
	}
	if h.routesGone {
		out.routes = nil
	}
	out.listener = &listenerv3.Listener{Name: h.target, ApiListener: &listenerv3.ApiListener{ApiListener: packed(manager)}}
	return out
}

// optionalPlugin is a cluster specifier plugin that neither side supports.
var optionalPlugin = &routev3.ClusterSpecifierPlugin{
	Extension: &corev3.TypedExtensionConfig{Name: "plugin", TypedConfig: packed(&typev3.Int64Range{})}, IsOptional: true,
}

func (h *virtualHost) resource() *routev3.VirtualHost {
	out := &routev3.VirtualHost{Name: h.name, Domains: h.domains}
	for _, r := range h.routes {
		out.Routes = append(out.Routes, r.resource())
	}
	return out
}

func (r *route) resource() *routev3.Route {
	out := &routev3.Route{Name: r.name, Match: r.path.resource()}
	for _, c := range r.headers {
		out.Match.Headers = append(out.Match.Headers, c.resource())
	}
	if r.fraction != nil {
		denominator := map[uint32]typev3.FractionalPercent_DenominatorType{
			100: typev3.FractionalPercent_HUNDRED, 10_000: typev3.FractionalPercent_TEN_THOUSAND, 1_000_000: typev3.FractionalPercent_MILLION,
		}[r.fraction.denominator]
		out.Match.RuntimeFraction = &corev3.RuntimeFractionalPercent{
			DefaultValue: &typev3.FractionalPercent{Numerator: r.fraction.numerator, Denominator: denominator},
		}
	}
	to := &routev3.RouteAction{}
	out.Action = &routev3.Route_Route{Route: to}
	for _, h := range r.hash {
		to.HashPolicy = append(to.HashPolicy, h.resource())
	}
	if r.alone {
		to.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: r.clusters[0].cluster}
	} else {
		all := &routev3.WeightedCluster{}
		for _, c := range r.clusters {
			all.Clusters = append(all.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: c.cluster, Weight: wrapperspb.UInt32(c.weight)})
		}
		to.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
	}
	switch r.action {
	case forward:
	case byHeader, plugin:
		set(to, string(r.action))
	case nowhere:
		to.ClusterSpecifier = nil
	case queries:
		set(out.GetMatch(), string(r.action))
	default:
		set(out, string(r.action))
	}
	return out
}

// set sets the fields of m that a JSON object names. null clears a field.
func set[M proto.Message](m M, text string) M {
	var named map[protoreflect.Name]json.RawMessage
	from := m.ProtoReflect().New()
	if err := errors.Join(json.Unmarshal([]byte(text), &named), protojson.Unmarshal([]byte(text), from.Interface())); err != nil {
		panic(fmt.Sprintf("%s: %v", text, err))
	}
	for name := range named {
		fd := from.Descriptor().Fields().ByName(name)
		m.ProtoReflect().Clear(fd)
		if from.Has(fd) {
			m.ProtoReflect().Set(fd, from.Get(fd))
		}
	}
	return m
}

// pattern returns a text, or a regular expression, as JSON.
func pattern(text string, regex bool) string {
	if regex {
		return fmt.Sprintf(`{"regex": %q}`, text)
	}
	return strconv.Quote(text)
}

func (c pathCondition) resource() *routev3.RouteMatch {
	m := &routev3.RouteMatch{}
	if c.fold {
		m.CaseSensitive = wrapperspb.Bool(false)
	}
	return set(m, fmt.Sprintf(`{%q: %s}`, c.kind, pattern(c.text, c.kind == regexPath)))
}

func (c headerCondition) resource() *routev3.HeaderMatcher {
	m := &routev3.HeaderMatcher{Name: c.header, InvertMatch: c.invert}
	text := pattern(c.text, c.kind == regexHeader)
	switch {
	case c.kind == presentHeader, c.kind == absentHeader:
		return set(m, fmt.Sprintf(`{"present_match": %t}`, c.kind == presentHeader))
	case c.kind == rangeHeader:
		return set(m, fmt.Sprintf(`{"range_match": {"start": %d, "end": %d}}`, c.low, c.high))
	case c.old:
		return set(m, fmt.Sprintf(`{"%s_match": %s}`, c.kind, text))
	default:
		return set(m, fmt.Sprintf(`{"string_match": {"ignore_case": %t, %q: %s}}`, c.fold, c.kind, text))
	}
}

func (h hashedBy) resource() *routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{Terminal: h.terminal}
	switch {
	case h.cookie:
		return set(out, `{"cookie": {"name": "c"}}`)
	case h.header == "":
		return set(out, `{"filter_state": {"key": "io.grpc.channel_id"}}`)
	case h.rewrite == "":
		return set(out, fmt.Sprintf(`{"header": {"header_name": %q}}`, h.header))
	default:
		return set(out, fmt.Sprintf(`{"header": {"header_name": %q, "regex_rewrite": {"pattern": {"regex": %q}, "substitution": "x"}}}`, h.header, h.rewrite))
	}
}

// routingFlaw breaks a rule of a Listener or of its routes: it sets fields of one of
// their parts.
type routingFlaw struct {
	name string
	part func(*managerv3.HttpConnectionManager, *routev3.RouteConfiguration) proto.Message
	json string
}

const (
	anInt64Range  = `{"@type": "type.googleapis.com/envoy.type.v3.Int64Range"}`
	routerFilter  = `{"name": "router", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`
	anotherRouter = `{"name": "again", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`
	unknownFilter = `"name": "unknown", "typed_config": ` + anInt64Range
)

// routingFlaws break rules; some are valid, and change nothing.
var routingFlaws = []*routingFlaw{
	{"no HTTP filter", ofManager, `{"http_filters": []}`},
	{"the router is there twice", ofManager, `{"http_filters": [` + routerFilter + `, ` + routerFilter + `]}`},
	{"two routers", ofManager, `{"http_filters": [` + routerFilter + `, ` + anotherRouter + `]}`},
	{"an unknown HTTP filter", ofManager, `{"http_filters": [{` + unknownFilter + `}, ` + routerFilter + `]}`},
	{"an unknown HTTP filter, which is optional", ofManager, `{"http_filters": [{"is_optional": true, ` + unknownFilter + `}, ` + routerFilter + `]}`},
	{"xff_num_trusted_hops", ofManager, `{"xff_num_trusted_hops": 1}`},
	{"no routes at all", ofManager, `{"route_config": null, "rds": null}`},
	{"scoped routes", ofManager, `{"scoped_routes": {}}`},
	{"routes without a name", ofManager, `{"rds": {"config_source": {"ads": {}}}}`},
	{"routes of no ADS", ofManager, `{"rds": {"route_config_name": "routes"}}`},
	{"a route without match", ofRoute, `{"match": null}`},
	{"a route without path", ofRoute, `{"match": {}}`},
	{"an unsupported path", ofRoute, `{"match": {"connect_matcher": {}}}`},
	{"a path's regex", ofRoute, `{"match": {"safe_regex": {"regex": "("}}}`},
	{"a header without condition", ofMatch, `{"headers": [{"name": "tenant"}]}`},
	{"a header's regex", ofMatch, `{"headers": [{"name": "tenant", "safe_regex_match": {"regex": "*"}}]}`},
	{"a header's empty prefix", ofMatch, `{"headers": [{"name": "tenant", "prefix_match": ""}]}`},
	{"a header's empty string_match", ofMatch, `{"headers": [{"name": "tenant", "string_match": {}}]}`},
	{"weights of 0", ofAction, `{"weighted_clusters": {"clusters": [{"name": "flawed", "weight": 0}, {"name": "flawed", "weight": 0}]}}`},
	{"weights too high", ofAction, `{"weighted_clusters": {"clusters": [{"name": "flawed", "weight": 2147483648}, {"name": "flawed", "weight": 2147483648}]}}`},
	{"an unknown plugin", ofAction, `{"cluster_specifier_plugin": "missing"}`},
	{"no retry", ofAction, `{"retry_policy": {"retry_on": "unavailable", "num_retries": 0}}`},
	{"retries without back-off", ofAction, `{"retry_policy": {"retry_back_off": {}}}`},
	{"retries", ofAction, `{"retry_policy": {"retry_on": "unavailable,cancelled,internal", "num_retries": 2}}`},
	{"a hash's regex", ofAction, `{"hash_policy": [{"header": {"header_name": "tenant", "regex_rewrite": {"pattern": {"regex": "["}, "substitution": "x"}}}]}`},
	{"retries of a virtual host", ofHost, `{"retry_policy": {"num_retries": 0}}`},
	{"a plugin that has to be known", ofRoutes, `{"cluster_specifier_plugins": [
		{"is_optional": true, "extension": {"name": "plugin", "typed_config": ` + anInt64Range + `}},
		{"extension": {"name": "must", "typed_config": ` + anInt64Range + `}}]}`},
	{"an unknown filter's override", ofHost, `{"typed_per_filter_config": {"unknown": ` + anInt64Range + `}}`},
}

func ofManager(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) proto.Message {
	return m
}

func ofRoutes(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) proto.Message {
	return c
}

func ofHost(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) proto.Message {
	return c.GetVirtualHosts()[0]
}

// ofRoute is a new route, the first of the first virtual host.
func ofRoute(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) proto.Message {
	return insertRoute(c, (&route{action: forward, path: pathCondition{kind: prefixPath}, clusters: []weighted{{"flawed", 1}}}).resource())
}

func ofMatch(m *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) proto.Message {
	ofRoute(m, c)
	return c.GetVirtualHosts()[0].GetRoutes()[0].GetMatch()
}

// ofAction is the action of a new route that matches no request.
func ofAction(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) proto.Message {
	to := &routev3.RouteAction{}
	if routes := c.GetVirtualHosts()[0].GetRoutes(); len(routes) > 0 {
		to.ClusterSpecifier = routes[0].GetRoute().GetClusterSpecifier()
	}
	return insertRoute(c, &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/never/used"}},
		Action: &routev3.Route_Route{Route: to},
	}).GetRoute()
}

func insertRoute(c *routev3.RouteConfiguration, r *routev3.Route) *routev3.Route {
	h := c.GetVirtualHosts()[0]
	h.Routes = append([]*routev3.Route{r}, h.GetRoutes()...)
	return r
}
