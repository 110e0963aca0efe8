package decode

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// apiListener is where a Listener's connection manager stands, and what it is.
const (
	apiListener = "api_listener.api_listener"
	hcmURL      = typeURLPrefix + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	writeAPI    = `write api_listener: {api_listener: {"@type": "` + hcmURL + `", route_config: {…}}}, or rds in the place of route_config`
)

// listenerValidator validates one Listener.
type listenerValidator struct{ *report }

// validateListener validates a Listener, whose name is validated already.
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

// clientSide judges an API listener.
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
	v.trustsNobody(&manager, apiListener)
	l.RouteName, l.Routes = v.routeSpecifier(&manager, apiListener, false)
	filterValidator(v).filters(manager.GetHttpFilters(), apiListener+".http_filters", false)
}

// trustsNobody judges what tells a caller's address (gRFC A41).
func (v listenerValidator) trustsNobody(m *hcmv3.HttpConnectionManager, field string) {
	if n := m.GetXffNumTrustedHops(); n != 0 {
		v.reject(field+".xff_num_trusted_hops", "is %d: it must be 0 or absent", n)
	}
	if len(m.GetOriginalIpDetectionExtensions()) != 0 {
		v.reject(field+".original_ip_detection_extensions", "is not supported")
	}
}

// routeSpecifier judges where a connection manager's routes come from.
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

// rds judges the name of a RouteConfiguration and where it comes from.
func (v listenerValidator) rds(m *hcmv3.Rds, field string, server bool) string {
	name := m.GetRouteConfigName()
	if name == "" {
		v.reject(field+".route_config_name", "is empty")
	} else if reason := badName(name); v.byHand && reason != "" {
		v.reject(field+".route_config_name", "%s", reason)
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
