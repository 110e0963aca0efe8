package decode

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

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
