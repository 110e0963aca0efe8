package decode

import (
	"net/netip"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// The path and the type of a Listener's connection manager, and how to write one.
const (
	apiListener = "api_listener.api_listener"
	hcmURL      = typeURLPrefix + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	writeAPI    = `write api_listener: {api_listener: {"@type": "` + hcmURL + `", route_config: {…}}}, or rds in the place of route_config`
)

type listenerValidator struct{ *report }

func validateListener(r *report, m *listenerv3.Listener) *resource.Listener {
	v := listenerValidator{r}
	l := &resource.Listener{Name: m.GetName()}
	switch {
	case m.GetApiListener() != nil:
		v.clientSide(m.GetApiListener(), l)
	case v.byHand:
		v.reject("api_listener", "is absent, which makes it the listener of a server's port, and lbd picks for clients: %s", writeAPI)
	default:
		l.ServerSide = true
		v.serverSide(m)
	}
	return l
}

func (v listenerValidator) clientSide(m *listenerv3.ApiListener, l *resource.Listener) {
	config := m.GetApiListener()
	if config.GetTypeUrl() != hcmURL {
		v.reject(apiListener+".@type", "is %q, and must be an HttpConnectionManager: %s", config.GetTypeUrl(), writeAPI)
		return
	}
	var manager hcmv3.HttpConnectionManager
	if !v.carries(config, &manager, apiListener) {
		return
	}
	v.fields(&manager, apiListener)
	v.callerAddress(&manager, apiListener)
	l.RouteName, l.Routes = v.routeSpecifier(&manager, apiListener, false)
	filterValidator(v).filters(manager.GetHttpFilters(), apiListener+".http_filters", false)
}

// callerAddress rejects other ways to find the address of a caller (gRFC A41).
func (v listenerValidator) callerAddress(m *hcmv3.HttpConnectionManager, field string) {
	if n := m.GetXffNumTrustedHops(); n != 0 {
		v.reject(field+".xff_num_trusted_hops", "is %d: it must be 0 or absent", n)
	}
	if len(m.GetOriginalIpDetectionExtensions()) != 0 {
		v.reject(field+".original_ip_detection_extensions", "is not supported")
	}
}

func (v listenerValidator) routeSpecifier(m *hcmv3.HttpConnectionManager, field string, server bool) (name string, inline *resource.RouteConfiguration) {
	switch r := m.GetRouteSpecifier().(type) {
	case *hcmv3.HttpConnectionManager_Rds:
		return v.rds(r.Rds, field+".rds", server), nil
	case *hcmv3.HttpConnectionManager_RouteConfig:
		return "", validateRoutes(v.report, r.RouteConfig, field+".route_config")
	case nil:
		v.reject(field, "has no routes: write route_config, or rds: {route_config_name: …}")
	default:
		v.reject(field+"."+oneof(m, "route_specifier"), "is not supported: supported are route_config and rds")
	}
	return "", nil
}

func (v listenerValidator) rds(m *hcmv3.Rds, field string, server bool) string {
	name := m.GetRouteConfigName()
	if name == "" {
		v.reject(field+".route_config_name", "is empty")
	} else if v.byHand {
		v.rejectIf(field+".route_config_name", badName(name))
	}
	source := m.GetConfigSource()
	if _, self := source.GetConfigSourceSpecifier().(*corev3.ConfigSource_Self); self && server {
		v.reject(field+".config_source", "is self: it must be ads")
		return name
	}
	v.configSource(source, field+".config_source", whereRoutes)
	return name
}

const whereRoutes = "the RouteConfiguration is the one that is pushed, in lbd's own files, or from a management server"

// serverSide validates the listener of a server's port, as gRPC does (gRFC A36). lbd does
// not use it.
func (v listenerValidator) serverSide(m *listenerv3.Listener) {
	if n := len(m.GetListenerFilters()); n > 0 {
		v.reject("listener_filters", "holds %d filters: none is supported", n)
	}
	if m.GetUseOriginalDst().GetValue() {
		v.reject("use_original_dst", "is true, which is not supported")
	}
	if m.GetAddress().GetSocketAddress() == nil {
		v.reject("address.socket_address", "is absent")
	}
	if c := m.GetDefaultFilterChain(); c != nil {
		v.filterChain(c, "default_filter_chain")
	}
	chains := filterChains{listenerValidator: v, destinations: map[netip.Prefix]*destination{}}
	for i, c := range m.GetFilterChains() {
		chains.add(c, element("filter_chains", i))
	}
	if m.GetDefaultFilterChain() == nil && !chains.any() && v.err() == nil {
		v.reject("filter_chains", "holds no chain that is supported, and default_filter_chain is absent")
	}
}

// filterChains are those of a listener, by what they match.
type filterChains struct {
	listenerValidator
	destinations map[netip.Prefix]*destination
}

// destination holds the chains for one prefix of destinations.
type destination struct {
	// raw is true once a chain names the transport protocol raw_buffer: those without
	// one are then left out.
	raw    bool
	chains map[chainKey]bool
}

type chainKey struct {
	kind   listenerv3.FilterChainMatch_ConnectionSourceType
	source netip.Prefix
	port   uint32 // 0: any
}

func (f *filterChains) any() bool {
	for _, d := range f.destinations {
		if len(d.chains) > 0 {
			return true
		}
	}
	return false
}

// add validates a chain. One that matches by what is not supported is left out.
func (f *filterChains) add(c *listenerv3.FilterChain, field string) {
	match := c.GetFilterChainMatch()
	if match.GetDestinationPort().GetValue() != 0 {
		return
	}
	at := field + ".filter_chain_match"
	destinations, ok := f.prefixes(match.GetPrefixRanges(), at+".prefix_ranges")
	if !ok {
		return
	}
	added := false
	for _, prefix := range destinations {
		d := f.destinations[prefix]
		if d == nil {
			d = &destination{chains: map[chainKey]bool{}}
			f.destinations[prefix] = d
		}
		if !d.keeps(match) {
			continue
		}
		if !f.sources(d, match, at) {
			return
		}
		added = true
	}
	if added {
		f.filterChain(c, field)
	}
}

// keeps reports whether a chain is not left out.
func (d *destination) keeps(m *listenerv3.FilterChainMatch) bool {
	protocol := m.GetTransportProtocol()
	switch {
	case len(m.GetServerNames()) > 0, protocol != "" && protocol != "raw_buffer", protocol == "" && d.raw:
		return false
	case protocol != "" && !d.raw:
		d.raw = true
		clear(d.chains)
	}
	return len(m.GetApplicationProtocols()) == 0
}

func (f *filterChains) sources(d *destination, m *listenerv3.FilterChainMatch, field string) bool {
	kind := m.GetSourceType()
	if _, known := listenerv3.FilterChainMatch_ConnectionSourceType_name[int32(kind)]; !known {
		f.reject(field+".source_type", "is %d, which is not supported", kind)
		return false
	}
	sources, ok := f.prefixes(m.GetSourcePrefixRanges(), field+".source_prefix_ranges")
	if !ok {
		return false
	}
	ports := m.GetSourcePorts()
	if len(ports) == 0 {
		ports = []uint32{0}
	}
	for _, source := range sources {
		for _, port := range ports {
			key := chainKey{kind, source, port}
			if d.chains[key] {
				f.reject(field, "matches what another chain matches")
				return false
			}
			d.chains[key] = true
		}
	}
	return true
}

// prefixes reads ranges of addresses; the zero Prefix alone means all addresses.
func (f *filterChains) prefixes(ranges []*corev3.CidrRange, field string) ([]netip.Prefix, bool) {
	if len(ranges) == 0 {
		return []netip.Prefix{{}}, true
	}
	prefixes := make([]netip.Prefix, 0, len(ranges))
	for i, r := range ranges {
		at := element(field, i)
		addr, err := netip.ParseAddr(r.GetAddressPrefix())
		if err != nil {
			f.reject(at+".address_prefix", "is %q, which is no IP address", r.GetAddressPrefix())
			return nil, false
		}
		prefix := netip.PrefixFrom(addr.Unmap(), int(r.GetPrefixLen().GetValue())).Masked()
		if !prefix.IsValid() {
			f.reject(at+".prefix_len", "is %d, of at most %d", r.GetPrefixLen().GetValue(), addr.Unmap().BitLen())
			return nil, false
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, true
}

func (v listenerValidator) filterChain(c *listenerv3.FilterChain, field string) {
	v.networkFilters(c.GetFilters(), field+".filters")
	socket := c.GetTransportSocket()
	if socket == nil {
		return
	}
	field += ".transport_socket"
	var m tlsv3.DownstreamTlsContext
	tls := tlsValidator(v)
	if !tls.tlsSocket(socket, &m, field) {
		return
	}
	field += ".typed_config"
	if m.GetRequireSni().GetValue() {
		v.reject(field+".require_sni", "is true, which is not supported")
	}
	if p := m.GetOcspStaplePolicy(); p != tlsv3.DownstreamTlsContext_LENIENT_STAPLING {
		v.reject(field+".ocsp_staple_policy", "%s is not supported", p)
	}
	s, problem := tlsSide{server: true}.security(m.GetCommonTlsContext())
	if problem != nil {
		v.reject(join(field, problem.Field), "%s", problem.Reason)
		return
	}
	if m.GetRequireClientCertificate().GetValue() && s.RootInstance == "" {
		v.reject(field+".require_client_certificate", "is true, where no certificate provider instance has the roots")
	}
	tls.instances(s, field+".common_tls_context")
}

// filterName validates the name of a filter, which must be unique among those seen.
func (r *report) filterName(name, field string, seen map[string]bool) {
	switch {
	case name == "":
		r.reject(field, "is empty")
	case seen[name]:
		r.reject(field, "is %q, as that of another filter is", name)
	}
	seen[name] = true
}

// networkFilters validates the filters of a chain, which uses the first connection manager.
func (v listenerValidator) networkFilters(list []*listenerv3.Filter, field string) {
	seen := make(map[string]bool, len(list))
	managed := false
	for i, m := range list {
		at := element(field, i)
		v.filterName(m.GetName(), at+".name", seen)
		config := m.GetTypedConfig()
		at += ".typed_config"
		if config.GetTypeUrl() != hcmURL {
			v.reject(at, "is %q: the only network filter is the HttpConnectionManager", config.GetTypeUrl())
			continue
		}
		var manager hcmv3.HttpConnectionManager
		if !v.carries(config, &manager, at) {
			continue
		}
		filterValidator(v).filters(manager.GetHttpFilters(), at+".http_filters", true)
		if !managed {
			managed = true
			v.callerAddress(&manager, at)
			v.routeSpecifier(&manager, at, true)
		}
	}
	if len(list) == 0 {
		v.reject(field, "holds no HttpConnectionManager")
	}
}
