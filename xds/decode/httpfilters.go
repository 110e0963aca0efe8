package decode

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	udpav1 "github.com/cncf/xds/go/udpa/type/v1"
	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	faultv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/fault/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// httpFilter is an HTTP filter that gRPC has. Picks pass none: a filter is judged,
// and has no effect.
type httpFilter struct {
	client, server, terminal bool
	// config is what the filter's own configuration is, and override what takes
	// its place for a route; nil where there can be none.
	config, override func() proto.Message
}

// httpFilters are gRPC's, by the type URL of a configuration of theirs.
var httpFilters = map[string]httpFilter{
	typeURLPrefix + "envoy.extensions.filters.http.router.v3.Router": {
		client: true, server: true, terminal: true, config: func() proto.Message { return &routerv3.Router{} },
	},
	typeURLPrefix + "envoy.extensions.filters.http.fault.v3.HTTPFault": {
		client: true,
		config: func() proto.Message { return &faultv3.HTTPFault{} }, override: func() proto.Message { return &faultv3.HTTPFault{} },
	},
	typeURLPrefix + "envoy.extensions.filters.http.rbac.v3.RBAC":         rbacFilter,
	typeURLPrefix + "envoy.extensions.filters.http.rbac.v3.RBACPerRoute": rbacFilter,
}

var rbacFilter = httpFilter{
	server: true,
	config: func() proto.Message { return &rbacv3.RBAC{} }, override: func() proto.Message { return &rbacv3.RBACPerRoute{} },
}

// filterValidator validates HTTP filters.
type filterValidator struct{ *report }

// filters judges the HTTP filters of a connection manager (gRFC A39), which
// stands at a path. Those of a server's listener are others than a client's.
func (v filterValidator) filters(list []*hcmv3.HttpFilter, field string, server bool) {
	if v.byHand && len(list) == 0 {
		v.note(field, "is absent: taken as the router alone")
		return
	}
	seen := make(map[string]bool, len(list))
	var chain []int // those that are not left out
	for i, m := range list {
		at := element(field, i)
		switch name := m.GetName(); {
		case name == "":
			v.reject(at+".name", "is empty")
		case seen[name]:
			v.reject(at+".name", "is %q, as that of another filter is", name)
		}
		seen[m.GetName()] = true
		f, ok := v.filter(m.GetTypedConfig(), at+".typed_config", m.GetIsOptional(), false)
		switch {
		case !ok:
		case server && f.server, !server && f.client:
			chain = append(chain, i)
		case !m.GetIsOptional():
			v.reject(at+".typed_config", "is %q, which has no place in a %s", m.GetTypedConfig().GetTypeUrl(), sideWords(server))
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

const routerURL = typeURLPrefix + "envoy.extensions.filters.http.router.v3.Router"

func sideWords(server bool) string {
	if server {
		return "server's listener"
	}
	return "client's listener"
}

// filter judges a filter's configuration, or what takes its place for a route.
// ok is false for a filter that is left out, or was refused.
func (v filterValidator) filter(config *anypb.Any, field string, optional, override bool) (f httpFilter, ok bool) {
	url, isStruct, ok := v.filterType(config, field)
	if !ok {
		return f, false
	}
	f, known := httpFilters[url]
	if !known {
		if !optional {
			v.reject(field, "is %q, a filter that is not supported: leave it out, or set is_optional", url)
		} else {
			v.warnByHand(field, "is %q, which is not supported, and skipped", shortType(url))
		}
		return f, false
	}
	read := f.config
	if override {
		read = f.override
	}
	switch {
	case isStruct:
		v.reject(field, "is a TypedStruct: write the %s itself", shortType(url))
		return f, false
	case read == nil:
		v.reject(field, "is a %s, which nothing can take the place of", shortType(url))
		return f, false
	}
	m := read()
	if !config.MessageIs(m) {
		v.reject(field, "is %q, where a %s is wanted", url, nameOf(m))
		return f, false
	}
	if !v.carries(config, m, field) {
		return f, false
	}
	v.filterConfig(m, field)
	return f, true
}

// filterType returns the type URL of a filter's configuration, and whether a
// TypedStruct carries it.
func (v filterValidator) filterType(config *anypb.Any, field string) (url string, isStruct, ok bool) {
	switch config.MessageName() {
	case nameOf(&xdsv3.TypedStruct{}):
		var m xdsv3.TypedStruct
		ok = v.carries(config, &m, field)
		return m.GetTypeUrl(), true, ok
	case nameOf(&udpav1.TypedStruct{}):
		var m udpav1.TypedStruct
		ok = v.carries(config, &m, field)
		return m.GetTypeUrl(), true, ok
	default:
		return config.GetTypeUrl(), false, true
	}
}

// filterConfig judges what a filter is told to do.
func (v filterValidator) filterConfig(m proto.Message, field string) {
	switch m := m.(type) {
	case *routerv3.Router:
		v.fields(m, field)
	case *rbacv3.RBAC:
		v.rbac(m, field)
	case *rbacv3.RBACPerRoute:
		v.rbac(m.GetRbac(), field+".rbac")
	}
}

// rbac judges the policies of an RBAC filter (gRFC A41).
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
			v.permission(permission, at+element(".permissions", i))
		}
		for i, principal := range p.GetPrincipals() {
			v.principal(principal, at+element(".principals", i))
		}
	}
}

func (v filterValidator) permission(m *rbacconfigv3.Permission, field string) {
	var within []*rbacconfigv3.Permission
	switch r := m.GetRule().(type) {
	case *rbacconfigv3.Permission_Header:
		v.rbacHeader(r.Header, field)
	case *rbacconfigv3.Permission_AndRules:
		within = r.AndRules.GetRules()
	case *rbacconfigv3.Permission_OrRules:
		within = r.OrRules.GetRules()
	case *rbacconfigv3.Permission_NotRule:
		within = []*rbacconfigv3.Permission{r.NotRule}
	}
	for _, inner := range within {
		v.permission(inner, field)
	}
}

func (v filterValidator) principal(m *rbacconfigv3.Principal, field string) {
	var within []*rbacconfigv3.Principal
	switch r := m.GetIdentifier().(type) {
	case *rbacconfigv3.Principal_Header:
		v.rbacHeader(r.Header, field)
	case *rbacconfigv3.Principal_AndIds:
		within = r.AndIds.GetIds()
	case *rbacconfigv3.Principal_OrIds:
		within = r.OrIds.GetIds()
	case *rbacconfigv3.Principal_NotId:
		within = []*rbacconfigv3.Principal{r.NotId}
	}
	for _, inner := range within {
		v.principal(inner, field)
	}
}

func (v filterValidator) rbacHeader(m *routev3.HeaderMatcher, field string) {
	if name := strings.ToLower(m.GetName()); name == ":scheme" || strings.HasPrefix(name, "grpc-") {
		v.reject(field, "looks at the header %s, which no policy may", name)
	}
}
