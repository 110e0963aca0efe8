package decode

import (
	"cmp"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
)

// configSource judges where a resource that another names comes from. where says
// it of one that is written by hand, and does not come from where it is written.
func (r *report) configSource(source *corev3.ConfigSource, field, where string) {
	r.apiVersion(source.GetResourceApiVersion(), field+".resource_api_version")
	r.apiVersion(source.GetSelf().GetTransportApiVersion(), field+".self.transport_api_version")
	switch source.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self:
		return
	case *corev3.ConfigSource_PathConfigSource:
		if r.byHand {
			r.warn(field+".path_config_source", "is not read: %s", where)
			return
		}
	case *corev3.ConfigSource_Path:
		if r.byHand {
			r.warn(field+".path", "is not read: %s", where)
			return
		}
	case nil:
		if r.byHand {
			return
		}
	}
	r.refuse(field, "is %s: it must be ads or self", specifier(source))
}

// apiVersion warns of a version of xDS other than v3.
func (r *report) apiVersion(version corev3.ApiVersion, field string) {
	if version != corev3.ApiVersion_AUTO && version != corev3.ApiVersion_V3 {
		r.warnByHand(field, "is not applied: it is %s, and resources are V3", version)
	}
}

// specifier names what a config source is set to.
func specifier(s *corev3.ConfigSource) string {
	return cmp.Or(oneof(s, "config_source_specifier"), "absent")
}
