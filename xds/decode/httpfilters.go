package decode

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// httpFilter is an HTTP filter that gRPC has. It is validated, and has no effect: picks
// pass no HTTP filters.
type httpFilter struct {
	client, server, terminal bool
	// config is the type of the filter's configuration, and override that of a route's;
	// nil if there is none.
	config, override proto.Message
}

const routerURL = typeURLPrefix + "envoy.extensions.filters.http.router.v3.Router"

// httpFilters are gRPC's, by the type URLs of their configurations.
var httpFilters = map[string]httpFilter{
	routerURL: {client: true, server: true, terminal: true, config: &routerv3.Router{}},
	typeURLPrefix + "envoy.extensions.filters.http.fault.v3.HTTPFault":   {client: true, config: &faultv3.HTTPFault{}, override: &faultv3.HTTPFault{}},
	typeURLPrefix + "envoy.extensions.filters.http.rbac.v3.RBAC":         rbacFilter,
	typeURLPrefix + "envoy.extensions.filters.http.rbac.v3.RBACPerRoute": rbacFilter,
}

var rbacFilter = httpFilter{server: true, config: &rbacv3.RBAC{}, override: &rbacv3.RBACPerRoute{}}

type filterValidator struct{ *report }

// filters validates the HTTP filters of a connection manager (gRFC A39). Those of a
// server's listener differ from a client's.
func (v filterValidator) filters(list []*hcmv3.HttpFilter, field string, server bool) {
	if v.byHand && len(list) == 0 {
		v.note(field, "is absent: taken as the router alone")
		return
	}
	side := "client's listener"
	if server {
		side = "server's listener"
	}
	seen := make(map[string]bool, len(list))
	var chain []int // those that are not left out
	for i, m := range list {
		at := element(field, i)
		v.filterName(m.GetName(), at+".name", seen)
		f, ok := v.filter(m.GetTypedConfig(), at+".typed_config", m.GetIsOptional(), false)
		switch {
		case !ok:
		case server && f.server, !server && f.client:
			chain = append(chain, i)
		case !m.GetIsOptional():
			v.reject(at+".typed_config", "is %q, which has no place in a %s", m.GetTypedConfig().GetTypeUrl(), side)
		}
	}
	if len(chain) == 0 {
		v.reject(field, "holds no filter that is supported: the last must be the router (%s)", routerURL)
	}
	for k, i := range chain {
		at := element(field, i)
		url := list[i].GetTypedConfig().GetTypeUrl()
		terminal, last := httpFilters[url].terminal, k == len(chain)-1
		switch {
		case terminal && !last:
			v.reject(at, "is %s, which must be the last filter", shortType(url))
		case !terminal && last:
			v.reject(at, "is the last filter, and must be the router (%s)", routerURL)
		case !terminal:
			v.warnByHand(at, "is %s, and has no effect: picks pass no HTTP filters", shortType(url))
		}
	}
}

// filter validates a filter's configuration, or a route's override of it. ok is false for
// a filter that is left out or rejected.
func (v filterValidator) filter(config *anypb.Any, field string, optional, override bool) (f httpFilter, ok bool) {
	url := config.GetTypeUrl()
	wrapper := newTypedStruct(config.MessageName())
	if wrapper != nil {
		if !v.carries(config, wrapper, field) {
			return f, false
		}
		url = wrapper.GetTypeUrl()
	}
	f, known := httpFilters[url]
	read := f.config
	if override {
		read = f.override
	}
	switch {
	case !known && optional:
		v.warnByHand(field, "is %q, which is not supported, and skipped", shortType(url))
		return f, false
	case !known:
		v.reject(field, "is %q, a filter that is not supported: leave it out, or set is_optional", url)
		return f, false
	case wrapper != nil:
		v.reject(field, "is a TypedStruct: write the %s itself", shortType(url))
		return f, false
	case read == nil:
		v.reject(field, "is a %s, which does not support overrides", shortType(url))
		return f, false
	case !config.MessageIs(read):
		v.reject(field, "is %q, where a %s is wanted", url, nameOf(read))
		return f, false
	}
	m := read.ProtoReflect().New().Interface()
	if !v.carries(config, m, field) {
		return f, false
	}
	switch m := m.(type) {
	case *routerv3.Router:
		v.fields(m, field)
	case *rbacv3.RBAC:
		v.rbac(m, field)
	case *rbacv3.RBACPerRoute:
		v.rbac(m.GetRbac(), field+".rbac")
	}
	return f, true
}

// rbac validates the policies of an RBAC filter (gRFC A41).
func (v filterValidator) rbac(m *rbacv3.RBAC, field string) {
	policies := m.GetRules().GetPolicies()
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		p := policies[name]
		at := field + ".rules.policies[" + strconv.Quote(name) + "]"
		if p.GetCondition() != nil {
			v.reject(at+".condition", "is not supported")
		}
		if p.GetCheckedCondition() != nil {
			v.reject(at+".checked_condition", "is not supported")
		}
		for i, permission := range p.GetPermissions() {
			v.rbacHeaders(permission.ProtoReflect(), at+element(".permissions", i))
		}
		for i, principal := range p.GetPrincipals() {
			v.rbacHeaders(principal.ProtoReflect(), at+element(".principals", i))
		}
	}
}

// rbacHeaders validates the headers in a rule, which may consist of other rules.
func (v filterValidator) rbacHeaders(m protoreflect.Message, field string) {
	if header, ok := m.Interface().(*routev3.HeaderMatcher); ok {
		if name := strings.ToLower(header.GetName()); name == ":scheme" || strings.HasPrefix(name, "grpc-") {
			v.reject(field, "uses the header %s, which no policy may", name)
		}
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); messageIn(fd) != nil && m.Has(fd) {
			eachMessage(m, fd, nil, func(inner protoreflect.Message, _ path) { v.rbacHeaders(inner, field) })
		}
	}
}
