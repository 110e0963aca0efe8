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

// routeValidator validates one RouteConfiguration. It compares each virtual host with
// those before it.
type routeValidator struct {
	regexes
	base string // where the RouteConfiguration stands
	// plugins are the cluster specifier plugins by name; false are those that gRPC
	// does not have, and whose routes are left out.
	plugins map[string]bool
	// domains are where each stands first, and names which virtual host has each;
	// both only by hand.
	domains map[string]string
	names   map[string]int
}

// validateRoutes validates a RouteConfiguration, whose name is validated already and
// which stands at a path.
func validateRoutes(r *report, m *routev3.RouteConfiguration, base string) *resource.RouteConfiguration {
	v := &routeValidator{regexes: regexes{report: r}, base: base}
	c := &resource.RouteConfiguration{Name: m.GetName()}
	if v.byHand && v.tooManyRoutes(m) {
		return c
	}
	v.plugins = v.clusterSpecifierPlugins(m)
	if v.byHand {
		v.domains = map[string]string{}
		v.names = map[string]int{}
		if len(m.GetVirtualHosts()) == 0 {
			v.warn(within(base, "virtual_hosts"), "is empty: there are routes for nobody")
		}
	}
	c.VirtualHosts = make([]*resource.VirtualHost, len(m.GetVirtualHosts()))
	for i, h := range m.GetVirtualHosts() {
		c.VirtualHosts[i] = v.virtualHost(i, h)
	}
	return c
}

// tooManyRoutes refuses what is over the limits.
func (v *routeValidator) tooManyRoutes(m *routev3.RouteConfiguration) bool {
	hosts, domains, routes := len(m.GetVirtualHosts()), 0, 0
	for _, h := range m.GetVirtualHosts() {
		domains += len(h.GetDomains())
		routes += len(h.GetRoutes())
	}
	field := within(v.base, "virtual_hosts")
	if hosts > MaxVirtualHosts {
		v.reject(field, "holds %d virtual hosts, of at most %d", hosts, MaxVirtualHosts)
	}
	if domains > MaxDomains {
		v.reject(field, "hold %d domains, of at most %d", domains, MaxDomains)
	}
	if routes > MaxRoutes {
		v.reject(field, "hold %d routes, of at most %d", routes, MaxRoutes)
	}
	return hosts > MaxVirtualHosts || domains > MaxDomains || routes > MaxRoutes
}

// spot is where a virtual host stands, or one of its routes. Its path is written
// out only where it is needed.
type spot struct {
	base  string
	host  int
	route int // -1: the virtual host itself
}

// in returns the path of a field of what stands there.
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
		v.called(at, m.GetName())
		v.serves(at, m)
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
		v.reaches(at, h)
	}
	return h
}

// called judges the name of a virtual host. It may be absent: it means nothing.
func (v *routeValidator) called(at spot, name string) {
	if name == "" {
		return
	}
	if reason := unprintable(name); reason != "" {
		v.reject(at.in("name"), "%s", reason)
	} else if first, twice := v.names[name]; twice {
		v.warn(at.in("name"), "is %q, as that of virtual_hosts[%d] is", name, first)
		return
	}
	v.names[name] = at.host
}

// serves judges the domains of a virtual host. gRPC accepts what matches nothing,
// and what keeps everybody from being served.
func (v *routeValidator) serves(at spot, m *routev3.VirtualHost) {
	if len(m.GetDomains()) == 0 {
		v.reject(at.in("domains"), `is empty, so that nobody is served: write the targets' names, or "*" for all`)
	}
	for i, domain := range m.GetDomains() {
		field := at.in(element("domains", i))
		reason := badDomain(domain)
		first, twice := v.domains[domain]
		switch {
		case reason != "":
			v.reject(field, "%s", reason)
		case twice:
			v.reject(field, "is %q, as %s is: a domain has one virtual host", domain, first)
		default:
			v.domains[domain] = field
		}
	}
}

// badDomain says why a domain can match nothing, or nothing.
func badDomain(domain string) string {
	switch {
	case domain == "":
		return "is empty"
	case len(domain) > MaxNameBytes:
		return fmt.Sprintf("is %d bytes long, of at most %d", len(domain), MaxNameBytes)
	case !resource.ValidDomain(domain), strings.Count(domain, "*") > 1:
		return fmt.Sprintf("is %q: the * may be at the beginning or at the end, once", domain)
	default:
		return unprintable(domain)
	}
}

// reaches warns of routes that no request comes to.
func (v *routeValidator) reaches(at spot, h *resource.VirtualHost) {
	if len(h.Routes) == 0 {
		v.warn(at.in("routes"), "takes no request: picks of the targets that it serves are refused")
	}
	all := slices.IndexFunc(h.Routes, func(route *resource.Route) bool { return takesAll(&route.Match) })
	if all < 0 || all == len(h.Routes)-1 {
		return
	}
	at.route = h.Routes[all+1].Index
	v.warn(at.in(""), "is never reached: routes[%d] takes all requests", h.Routes[all].Index)
}

// takesAll reports whether the route takes every request.
func takesAll(m *resource.RouteMatch) bool {
	return m.Prefix != nil && (*m.Prefix == "" || *m.Prefix == "/") && len(m.Headers) == 0 &&
		(!m.HasFraction || m.PerMillion == million)
}

// route judges a route, and returns nil for one that is left out.
func (v *routeValidator) route(at spot, m *routev3.Route) *resource.Route {
	route := &resource.Route{Name: m.GetName()}
	if !v.match(at, m.GetMatch(), &route.Match) || !v.action(at, m, route) {
		return nil
	}
	v.overrides(at, m, "")
	return route
}

// clusterSpecifierPlugins judges the plugins that choose clusters in the place of
// routes. gRPC has one, which lbd has not: a request that such a route takes is
// refused.
func (v *routeValidator) clusterSpecifierPlugins(m *routev3.RouteConfiguration) map[string]bool {
	const known = typeURLPrefix + "grpc.lookup.v1.RouteLookupClusterSpecifier"
	list := m.GetClusterSpecifierPlugins()
	if len(list) == 0 {
		return nil
	}
	plugins := make(map[string]bool, len(list))
	for i, p := range list {
		field := within(v.base, element("cluster_specifier_plugins", i))
		url := p.GetExtension().GetTypedConfig().GetTypeUrl()
		plugins[p.GetExtension().GetName()] = url == known && !v.byHand
		switch {
		case url == known && !v.byHand:
		case p.GetIsOptional():
			v.warnByHand(field, "is not supported: the routes that use it are left out")
		default:
			v.reject(field+".extension.typed_config", "is %q, which is not supported: write cluster or weighted_clusters in the routes", url)
		}
	}
	return plugins
}

// perFilter is the field that holds what takes the place of filters'
// configurations.
const perFilter = "typed_per_filter_config"

// overriding is a message that takes the place of filters' configurations.
type overriding interface {
	proto.Message
	GetTypedPerFilterConfig() map[string]*anypb.Any
}

// overrides judges what takes the place of filters' configurations for what
// stands at a spot, or for m, a part of it at a field.
func (v *routeValidator) overrides(at spot, m overriding, field string) {
	configs := m.GetTypedPerFilterConfig()
	if len(configs) == 0 {
		return
	}
	v.warnUnapplied(m, perFilter, at.in(join(field, perFilter)), "has no effect: picks pass no HTTP filters")
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		config, optional := configs[name], false
		here := at.in(join(field, perFilter)) + "[" + strconv.Quote(name) + "]"
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
