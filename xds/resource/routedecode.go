package resource

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// routes judges a RouteConfiguration, whose name is judged already, and makes the
// value. The value is of use only where nothing was refused.
func (v *verdict) routes(m *routev3.RouteConfiguration) *RouteConfiguration {
	return &RouteConfiguration{Name: m.GetName()}
}
