package resource

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// routes judges a RouteConfiguration, whose name is judged already and which
// stands at a path, and makes the value. The value is of use only where nothing
// was refused.
func (v *verdict) routes(m *routev3.RouteConfiguration, base string) *RouteConfiguration {
	c := &RouteConfiguration{Name: m.GetName()}
	if v.byHand && v.tooManyRoutes(m, base) {
		return c
	}
	r := routing{verdict: v, base: base, plugins: v.clusterSpecifierPlugins(m, base)}
	if v.byHand {
		r.domains = map[string]string{}
		r.names = map[string]int{}
		if len(m.GetVirtualHosts()) == 0 {
			v.warn(within(base, "virtual_hosts"), "is empty: there are routes for nobody")
		}
	}
	c.VirtualHosts = make([]*VirtualHost, len(m.GetVirtualHosts()))
	for i, h := range m.GetVirtualHosts() {
		c.VirtualHosts[i] = r.virtualHost(i, h)
	}
	return c
}

// tooManyRoutes refuses what is over the limits.
func (v *verdict) tooManyRoutes(m *routev3.RouteConfiguration, base string) bool {
	hosts, domains, routes := len(m.GetVirtualHosts()), 0, 0
	for _, h := range m.GetVirtualHosts() {
		domains += len(h.GetDomains())
		routes += len(h.GetRoutes())
	}
	field := within(base, "virtual_hosts")
	if hosts > MaxVirtualHosts {
		v.refuse(field, "holds %d virtual hosts, of at most %d", hosts, MaxVirtualHosts)
	}
	if domains > MaxDomains {
		v.refuse(field, "hold %d domains, of at most %d", domains, MaxDomains)
	}
	if routes > MaxRoutes {
		v.refuse(field, "hold %d routes, of at most %d", routes, MaxRoutes)
	}
	return hosts > MaxVirtualHosts || domains > MaxDomains || routes > MaxRoutes
}

// routing is what the virtual hosts of a RouteConfiguration are judged against.
type routing struct {
	*verdict
	base string // where the RouteConfiguration stands
	// plugins are the cluster specifier plugins by name; false are those that
	// gRPC has not, and whose routes are left out.
	plugins map[string]bool
	// domains are where each stands first, and names which virtual host has each;
	// both only by hand.
	domains map[string]string
	names   map[string]int
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
	at := within(s.base, "virtual_hosts["+strconv.Itoa(s.host)+"]")
	if s.route >= 0 {
		at += ".routes[" + strconv.Itoa(s.route) + "]"
	}
	return within(at, field)
}

func (r *routing) virtualHost(i int, m *routev3.VirtualHost) *VirtualHost {
	at := spot{r.base, i, -1}
	if r.byHand {
		r.called(at, m.GetName())
		r.serves(at, m)
	}
	h := &VirtualHost{Name: m.GetName(), Domains: m.GetDomains(), Routes: make([]*Route, 0, len(m.GetRoutes()))}
	for k, route := range m.GetRoutes() {
		at := spot{r.base, i, k}
		if made := r.route(at, route); made != nil {
			made.Index = k
			h.Routes = append(h.Routes, made)
		}
	}
	r.retryPolicy(at, "retry_policy", m.GetRetryPolicy())
	r.overrides(at, m, "")
	if r.byHand {
		r.reaches(at, h)
	}
	return h
}

// called judges the name of a virtual host. It may be absent: it means nothing.
func (r *routing) called(at spot, name string) {
	if name == "" {
		return
	}
	if reason := unprintable(name); reason != "" {
		r.refuse(at.in("name"), "%s", reason)
	} else if first, twice := r.names[name]; twice {
		r.warn(at.in("name"), "is %q, as that of virtual_hosts[%d] is", name, first)
		return
	}
	r.names[name] = at.host
}

// serves judges the domains of a virtual host. gRPC accepts what matches nothing,
// and what keeps everybody from being served.
func (r *routing) serves(at spot, m *routev3.VirtualHost) {
	if len(m.GetDomains()) == 0 {
		r.refuse(at.in("domains"), `is empty, so that nobody is served: write the targets' names, or "*" for all`)
	}
	for i, domain := range m.GetDomains() {
		field := at.in("domains[" + strconv.Itoa(i) + "]")
		reason := badDomain(domain)
		first, twice := r.domains[domain]
		switch {
		case reason != "":
			r.refuse(field, "%s", reason)
		case twice:
			r.refuse(field, "is %q, as %s is: a domain has one virtual host", domain, first)
		default:
			r.domains[domain] = field
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
	case kindOfDomain(domain) == domainInvalid, strings.Count(domain, "*") > 1:
		return fmt.Sprintf("is %q: the * may be at the beginning or at the end, once", domain)
	default:
		return unprintable(domain)
	}
}

// reaches warns of routes that no request comes to.
func (r *routing) reaches(at spot, h *VirtualHost) {
	if len(h.Routes) == 0 {
		r.warn(at.in("routes"), "takes no request: picks of the targets that it serves are refused")
	}
	all := slices.IndexFunc(h.Routes, func(route *Route) bool { return route.Match.takesAll() })
	if all < 0 || all == len(h.Routes)-1 {
		return
	}
	at.route = h.Routes[all+1].Index
	r.warn(at.in(""), "is never reached: routes[%d] takes all requests", h.Routes[all].Index)
}

// takesAll reports whether the route takes every request.
func (m *RouteMatch) takesAll() bool {
	return m.Prefix != nil && (*m.Prefix == "" || *m.Prefix == "/") && len(m.Headers) == 0 &&
		(!m.HasFraction || m.PerMillion == million)
}

// route judges a route, and returns nil for one that is left out.
func (r *routing) route(at spot, m *routev3.Route) *Route {
	route := &Route{Name: m.GetName()}
	if !r.match(at, m.GetMatch(), &route.Match) || !r.action(at, m, route) {
		return nil
	}
	r.overrides(at, m, "")
	return route
}

// clusterSpecifierPlugins judges the plugins that choose clusters in the place of
// routes. gRPC has one, which lbd has not: a request that such a route takes is
// refused.
func (v *verdict) clusterSpecifierPlugins(m *routev3.RouteConfiguration, base string) map[string]bool {
	const known = typeURLPrefix + "grpc.lookup.v1.RouteLookupClusterSpecifier"
	list := m.GetClusterSpecifierPlugins()
	if len(list) == 0 {
		return nil
	}
	plugins := make(map[string]bool, len(list))
	for i, p := range list {
		field := within(base, "cluster_specifier_plugins["+strconv.Itoa(i)+"]")
		url := p.GetExtension().GetTypedConfig().GetTypeUrl()
		plugins[p.GetExtension().GetName()] = url == known && !v.byHand
		switch {
		case url == known && !v.byHand:
		case p.GetIsOptional():
			v.warnByHand(field, "is not supported: the routes that use it are left out")
		default:
			v.refuse(field+".extension.typed_config", "is %q, which is not supported: write cluster or weighted_clusters in the routes", url)
		}
	}
	return plugins
}
