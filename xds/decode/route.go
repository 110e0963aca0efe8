package decode

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// routeValidator validates one RouteConfiguration, and compares its virtual hosts.
type routeValidator struct {
	regexes
	base string // the path of the RouteConfiguration
	// plugins are the cluster specifier plugins by name; false for those that gRPC
	// does not have: their routes are left out.
	plugins map[string]bool
	// domains has the first path of each domain, and names the first virtual host of each
	// name; both only by hand.
	domains map[string]string
	names   map[string]int
}

// validateRoutes validates a RouteConfiguration with a valid name. base is its path.
func validateRoutes(r *report, m *routev3.RouteConfiguration, base string) *resource.RouteConfiguration {
	v := &routeValidator{regexes: regexes{report: r}, base: base}
	c := &resource.RouteConfiguration{Name: m.GetName()}
	field := within(base, "virtual_hosts")
	hosts, domains, routes := len(m.GetVirtualHosts()), 0, 0
	for _, h := range m.GetVirtualHosts() {
		domains += len(h.GetDomains())
		routes += len(h.GetRoutes())
	}
	if v.tooMany(field, hosts, MaxVirtualHosts, "virtual hosts") || v.tooMany(field, domains, MaxDomains, "domains") ||
		v.tooMany(field, routes, MaxRoutes, "routes") {
		return c
	}
	v.plugins = v.clusterSpecifierPlugins(m)
	if v.byHand {
		v.domains = map[string]string{}
		v.names = map[string]int{}
		if hosts == 0 {
			v.warn(field, "is empty: no target has routes")
		}
	}
	c.VirtualHosts = make([]*resource.VirtualHost, hosts)
	for i, h := range m.GetVirtualHosts() {
		c.VirtualHosts[i] = v.virtualHost(i, h)
	}
	return c
}

// spot is the position of a virtual host, or of one of its routes. Its path is written
// only when it is needed.
type spot struct {
	base  string
	host  int
	route int // -1: the virtual host itself
}

func (s spot) in(field string) string {
	at := within(s.base, element("virtual_hosts", s.host))
	if s.route >= 0 {
		at += element(".routes", s.route)
	}
	return within(at, field)
}

func (v *routeValidator) virtualHost(i int, m *routev3.VirtualHost) *resource.VirtualHost {
	at := spot{v.base, i, -1}
	if v.byHand {
		v.hostName(at, m.GetName())
		v.hostDomains(at, m)
	}
	h := &resource.VirtualHost{Name: m.GetName(), Domains: m.GetDomains(), Routes: make([]*resource.Route, 0, len(m.GetRoutes()))}
	for k, route := range m.GetRoutes() {
		at := spot{v.base, i, k}
		if made := v.route(at, route); made != nil {
			made.Index = k
			h.Routes = append(h.Routes, made)
		}
	}
	v.retryPolicy(at, "retry_policy", m.GetRetryPolicy())
	v.overrides(at, m, "")
	if v.byHand {
		v.warnUnreachable(at, h)
	}
	return h
}

// hostName validates the name of a virtual host, which has no effect and may be absent.
func (v *routeValidator) hostName(at spot, name string) {
	if name == "" {
		return
	}
	if reason := unprintable(name); reason != "" {
		v.reject(at.in("name"), "%s", reason)
	} else if first, twice := v.names[name]; twice {
		v.warn(at.in("name"), "duplicate name %q (also virtual_hosts[%d])", name, first)
		return
	}
	v.names[name] = at.host
}

// hostDomains validates the domains of a virtual host. gRPC accepts domains that match
// nothing, and none.
func (v *routeValidator) hostDomains(at spot, m *routev3.VirtualHost) {
	if len(m.GetDomains()) == 0 {
		v.reject(at.in("domains"), `is empty, so that it serves no target: write the targets' names, or "*" for all`)
	}
	for i, domain := range m.GetDomains() {
		field := at.in(element("domains", i))
		reason := badDomain(domain)
		first, twice := v.domains[domain]
		switch {
		case reason != "":
			v.reject(field, "%s", reason)
		case twice:
			v.reject(field, "duplicate domain %q (also %s)", domain, first)
		default:
			v.domains[domain] = field
		}
	}
}

// badDomain returns the reason why a domain can match nothing, or "".
func badDomain(domain string) string {
	switch {
	case domain == "":
		return "is empty"
	case len(domain) <= MaxNameBytes && (!resource.ValidDomain(domain) || strings.Count(domain, "*") > 1):
		return fmt.Sprintf("is %q: the * may be at the beginning or at the end, once", domain)
	default:
		return badText(domain, MaxNameBytes)
	}
}

func (v *routeValidator) warnUnreachable(at spot, h *resource.VirtualHost) {
	if len(h.Routes) == 0 {
		v.warn(at.in("routes"), "match no request: picks of its targets fail")
	}
	all := slices.IndexFunc(h.Routes, func(route *resource.Route) bool { return matchesAll(&route.Match) })
	if all < 0 || all == len(h.Routes)-1 {
		return
	}
	at.route = h.Routes[all+1].Index
	v.warn(at.in(""), "is never reached: routes[%d] takes all requests", h.Routes[all].Index)
}

func matchesAll(m *resource.RouteMatch) bool {
	return m.Prefix != nil && (*m.Prefix == "" || *m.Prefix == "/") && len(m.Headers) == 0 &&
		(!m.HasFraction || m.PerMillion == million)
}

// route validates a route, and returns nil for one that is left out.
func (v *routeValidator) route(at spot, m *routev3.Route) *resource.Route {
	route := &resource.Route{Name: m.GetName()}
	if !v.match(at, m.GetMatch(), &route.Match) || !v.action(at, m, route) {
		return nil
	}
	v.overrides(at, m, "")
	return route
}

// clusterSpecifierPlugins validates the plugins that choose clusters. gRPC has one, which
// lbd does not support: a request that matches a route with it fails.
func (v *routeValidator) clusterSpecifierPlugins(m *routev3.RouteConfiguration) map[string]bool {
	plugins := make(map[string]bool, len(m.GetClusterSpecifierPlugins()))
	for i, p := range m.GetClusterSpecifierPlugins() {
		field := within(v.base, element("cluster_specifier_plugins", i))
		url := p.GetExtension().GetTypedConfig().GetTypeUrl()
		known := !v.byHand && url == typeURLPrefix+"grpc.lookup.v1.RouteLookupClusterSpecifier"
		plugins[p.GetExtension().GetName()] = known
		switch {
		case known:
		case p.GetIsOptional():
			v.warnByHand(field, "is not supported: the routes that use it are left out")
		default:
			v.reject(field+".extension.typed_config", "is %q, which is not supported: write cluster or weighted_clusters in the routes", url)
		}
	}
	return plugins
}

// perFilter is the field with a route's overrides of the filters' configurations.
const perFilter = "typed_per_filter_config"

type overriding interface {
	proto.Message
	GetTypedPerFilterConfig() map[string]*anypb.Any
}

// overrides validates the overrides of filters' configurations in m, which is what the
// spot is about, or the part of it at a field.
func (v *routeValidator) overrides(at spot, m overriding, field string) {
	configs := m.GetTypedPerFilterConfig()
	if len(configs) == 0 {
		return
	}
	field = at.in(join(field, perFilter))
	v.warnUnapplied(m, perFilter, field, "has no effect: picks pass no HTTP filters")
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		config, optional, here := configs[name], false, field+"["+strconv.Quote(name)+"]"
		if m := (&routev3.FilterConfig{}); config.MessageIs(m) {
			if !v.carries(config, m, here) {
				continue
			}
			config, optional = m.GetConfig(), m.GetIsOptional()
			here += ".config"
		}
		filterValidator{v.report}.filter(config, here, optional, true)
	}
}
