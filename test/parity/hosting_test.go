package parity_test

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// hosted are a hosting's resources as the management server has them.
type hosted struct {
	listener    *listenerv3.Listener // nil where there is none
	routes      *routev3.RouteConfiguration
	clusters    []*clusterv3.Cluster
	assignments []*endpointv3.ClusterLoadAssignment
}

// all returns the resources by type.
func (h hosted) all() [][]types.Resource {
	var listeners, routes []types.Resource
	if h.listener != nil {
		listeners = append(listeners, h.listener)
	}
	if h.routes != nil {
		routes = append(routes, h.routes)
	}
	return [][]types.Resource{listeners, routes, asResources(h.clusters), asResources(h.assignments)}
}

func (h *hosting) resources() hosted {
	var out hosted
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
		h.flaw.apply(manager, rc)
	}
	if h.routesGone {
		out.routes = nil
	}
	out.listener = listenerOf(h.target, manager)
	return out
}

// optionalPlugin is a cluster specifier plugin that nobody knows.
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
	for _, h := range r.hash {
		to.HashPolicy = append(to.HashPolicy, h.resource())
	}
	switch {
	case r.alone:
		to.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: r.clusters[0].cluster}
	default:
		all := &routev3.WeightedCluster{}
		for _, c := range r.clusters {
			all.Clusters = append(all.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: c.cluster, Weight: wrapperspb.UInt32(c.weight)})
		}
		to.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
	}
	out.Action = &routev3.Route_Route{Route: to}
	switch r.action {
	case forward:
	case redirect:
		out.Action = &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{}}
	case answer:
		out.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 404}}
	case serving:
		out.Action = &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}}
	case byHeader:
		to.ClusterSpecifier = &routev3.RouteAction_ClusterHeader{ClusterHeader: "tenant"}
	case nowhere:
		to.ClusterSpecifier = nil
	case plugin:
		to.ClusterSpecifier = &routev3.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "plugin"}
	case queries:
		out.Match.QueryParameters = []*routev3.QueryParameterMatcher{{
			Name: "q", QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_PresentMatch{PresentMatch: true},
		}}
	}
	return out
}

func (c pathCondition) resource() *routev3.RouteMatch {
	m := &routev3.RouteMatch{}
	switch c.kind {
	case exactPath:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: c.text}
	case prefixPath:
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: c.text}
	default:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: c.text}}
	}
	if c.fold {
		m.CaseSensitive = wrapperspb.Bool(false)
	}
	return m
}

func (c headerCondition) resource() *routev3.HeaderMatcher {
	m := &routev3.HeaderMatcher{Name: c.header, InvertMatch: c.invert}
	regex := &matcherv3.RegexMatcher{Regex: c.text}
	switch c.kind {
	case presentHeader, absentHeader:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PresentMatch{PresentMatch: c.kind == presentHeader}
		return m
	case rangeHeader:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_RangeMatch{RangeMatch: &typev3.Int64Range{Start: c.low, End: c.high}}
		return m
	}
	if !c.old {
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_StringMatch{StringMatch: c.stringMatch(regex)}
		return m
	}
	switch c.kind {
	case exactHeader:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_ExactMatch{ExactMatch: c.text}
	case prefixHeader:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_PrefixMatch{PrefixMatch: c.text}
	case suffixHeader:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_SuffixMatch{SuffixMatch: c.text}
	case containsHeader:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_ContainsMatch{ContainsMatch: c.text}
	default:
		m.HeaderMatchSpecifier = &routev3.HeaderMatcher_SafeRegexMatch{SafeRegexMatch: regex}
	}
	return m
}

func (c headerCondition) stringMatch(regex *matcherv3.RegexMatcher) *matcherv3.StringMatcher {
	m := &matcherv3.StringMatcher{IgnoreCase: c.fold}
	switch c.kind {
	case exactHeader:
		m.MatchPattern = &matcherv3.StringMatcher_Exact{Exact: c.text}
	case prefixHeader:
		m.MatchPattern = &matcherv3.StringMatcher_Prefix{Prefix: c.text}
	case suffixHeader:
		m.MatchPattern = &matcherv3.StringMatcher_Suffix{Suffix: c.text}
	case containsHeader:
		m.MatchPattern = &matcherv3.StringMatcher_Contains{Contains: c.text}
	default:
		m.MatchPattern = &matcherv3.StringMatcher_SafeRegex{SafeRegex: regex}
	}
	return m
}

func (h hashedBy) resource() *routev3.RouteAction_HashPolicy {
	out := &routev3.RouteAction_HashPolicy{Terminal: h.terminal}
	switch {
	case h.cookie:
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Cookie_{Cookie: &routev3.RouteAction_HashPolicy_Cookie{Name: "c"}}
	case h.header == "":
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_FilterState_{
			FilterState: &routev3.RouteAction_HashPolicy_FilterState{Key: "io.grpc.channel_id"},
		}
	default:
		by := &routev3.RouteAction_HashPolicy_Header{HeaderName: h.header}
		if h.rewrite != "" {
			by.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
				Pattern: &matcherv3.RegexMatcher{Regex: h.rewrite}, Substitution: "x",
			}
		}
		out.PolicySpecifier = &routev3.RouteAction_HashPolicy_Header_{Header: by}
	}
	return out
}

// routingFlaw breaks a rule of a Listener or of its routes.
type routingFlaw struct {
	name  string
	apply func(*managerv3.HttpConnectionManager, *routev3.RouteConfiguration)
}

// routingFlaws are rules that can be broken; some are none, and change nothing.
var routingFlaws = []*routingFlaw{
	{"no HTTP filter", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) { m.HttpFilters = nil }},
	{"the router is there twice", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) {
		m.HttpFilters = append(m.HttpFilters, router())
	}},
	{"two routers", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) {
		again := router()
		again.Name = "again"
		m.HttpFilters = append(m.HttpFilters, again)
	}},
	{"an unknown HTTP filter", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) {
		m.HttpFilters = append([]*managerv3.HttpFilter{unknownFilter(false)}, m.HttpFilters...)
	}},
	{"an unknown HTTP filter, which is optional", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) {
		m.HttpFilters = append([]*managerv3.HttpFilter{unknownFilter(true)}, m.HttpFilters...)
	}},
	{"xff_num_trusted_hops", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) { m.XffNumTrustedHops = 1 }},
	{"no routes at all", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) { m.RouteSpecifier = nil }},
	{"scoped routes", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) {
		m.RouteSpecifier = &managerv3.HttpConnectionManager_ScopedRoutes{ScopedRoutes: &managerv3.ScopedRoutes{}}
	}},
	{"routes without a name", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) {
		m.RouteSpecifier = &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{ConfigSource: ads}}
	}},
	{"routes of no ADS", func(m *managerv3.HttpConnectionManager, _ *routev3.RouteConfiguration) {
		m.RouteSpecifier = &managerv3.HttpConnectionManager_Rds{Rds: &managerv3.Rds{RouteConfigName: "routes"}}
	}},
	{"a route without match", ofRoute(func(r *routev3.Route) { r.Match = nil })},
	{"a route without path", ofRoute(func(r *routev3.Route) { r.Match.PathSpecifier = nil })},
	{"an odd path", ofRoute(func(r *routev3.Route) {
		r.Match.PathSpecifier = &routev3.RouteMatch_ConnectMatcher_{ConnectMatcher: &routev3.RouteMatch_ConnectMatcher{}}
	})},
	{"a path's regex", ofRoute(func(r *routev3.Route) {
		r.Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "("}}
	})},
	{"a header without condition", ofHeader(&routev3.HeaderMatcher{Name: "tenant"})},
	{"a header's regex", ofHeader(&routev3.HeaderMatcher{Name: "tenant", HeaderMatchSpecifier: &routev3.HeaderMatcher_SafeRegexMatch{
		SafeRegexMatch: &matcherv3.RegexMatcher{Regex: "*"},
	}})},
	{"a header's empty prefix", ofHeader(&routev3.HeaderMatcher{Name: "tenant", HeaderMatchSpecifier: &routev3.HeaderMatcher_PrefixMatch{}})},
	{"a header's empty string_match", ofHeader(&routev3.HeaderMatcher{Name: "tenant", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{},
	}})},
	{"weights of 0", ofAction(func(a *routev3.RouteAction) {
		a.ClusterSpecifier = weightsOf(0, 0)
	})},
	{"weights too high", ofAction(func(a *routev3.RouteAction) {
		a.ClusterSpecifier = weightsOf(1<<31, 1<<31)
	})},
	{"an unknown plugin", ofAction(func(a *routev3.RouteAction) {
		a.ClusterSpecifier = &routev3.RouteAction_ClusterSpecifierPlugin{ClusterSpecifierPlugin: "nobody's"}
	})},
	{"no retry", ofAction(func(a *routev3.RouteAction) {
		a.RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable", NumRetries: wrapperspb.UInt32(0)}
	})},
	{"retries without back-off", ofAction(func(a *routev3.RouteAction) {
		a.RetryPolicy = &routev3.RetryPolicy{RetryBackOff: &routev3.RetryPolicy_RetryBackOff{}}
	})},
	{"retries", ofAction(func(a *routev3.RouteAction) {
		a.RetryPolicy = &routev3.RetryPolicy{RetryOn: "unavailable,cancelled,internal", NumRetries: wrapperspb.UInt32(2)}
	})},
	{"a hash's regex", ofAction(func(a *routev3.RouteAction) {
		a.HashPolicy = append(a.HashPolicy, hashedBy{header: "tenant", rewrite: "["}.resource())
	})},
	{"retries of a virtual host", func(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) {
		c.GetVirtualHosts()[0].RetryPolicy = &routev3.RetryPolicy{NumRetries: wrapperspb.UInt32(0)}
	}},
	{"a plugin that has to be known", func(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) {
		c.ClusterSpecifierPlugins = append(c.ClusterSpecifierPlugins, &routev3.ClusterSpecifierPlugin{
			Extension: &corev3.TypedExtensionConfig{Name: "must", TypedConfig: packed(&typev3.Int64Range{})},
		})
	}},
	{"an unknown filter's override", func(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) {
		c.GetVirtualHosts()[0].TypedPerFilterConfig = map[string]*anypb.Any{"odd": packed(&typev3.Int64Range{})}
	}},
}

func unknownFilter(optional bool) *managerv3.HttpFilter {
	return &managerv3.HttpFilter{
		Name: "unknown", IsOptional: optional,
		ConfigType: &managerv3.HttpFilter_TypedConfig{TypedConfig: packed(&typev3.Int64Range{})},
	}
}

// ofRoute changes the first route of the first virtual host, or makes one.
func ofRoute(change func(*routev3.Route)) func(*managerv3.HttpConnectionManager, *routev3.RouteConfiguration) {
	return func(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) {
		h := c.GetVirtualHosts()[0]
		r := (&route{action: forward, path: pathCondition{kind: prefixPath}, clusters: []weighted{{"flawed", 1}}}).resource()
		change(r)
		h.Routes = append([]*routev3.Route{r}, h.GetRoutes()...)
	}
}

func ofHeader(m *routev3.HeaderMatcher) func(*managerv3.HttpConnectionManager, *routev3.RouteConfiguration) {
	return ofRoute(func(r *routev3.Route) { r.Match.Headers = []*routev3.HeaderMatcher{m} })
}

// ofAction changes what a route does that takes no request.
func ofAction(change func(*routev3.RouteAction)) func(*managerv3.HttpConnectionManager, *routev3.RouteConfiguration) {
	return func(_ *managerv3.HttpConnectionManager, c *routev3.RouteConfiguration) {
		h := c.GetVirtualHosts()[0]
		to := &routev3.RouteAction{}
		if len(h.GetRoutes()) > 0 && h.GetRoutes()[0].GetRoute() != nil {
			to.ClusterSpecifier = h.GetRoutes()[0].GetRoute().GetClusterSpecifier()
		}
		change(to)
		h.Routes = append([]*routev3.Route{{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Path{Path: "/nobody/asks"}},
			Action: &routev3.Route_Route{Route: to},
		}}, h.GetRoutes()...)
	}
}

func weightsOf(weights ...uint32) *routev3.RouteAction_WeightedClusters {
	all := &routev3.WeightedCluster{}
	for _, w := range weights {
		all.Clusters = append(all.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: "flawed", Weight: wrapperspb.UInt32(w)})
	}
	return &routev3.RouteAction_WeightedClusters{WeightedClusters: all}
}
