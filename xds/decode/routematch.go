package decode

import (
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/resource"
)

// conditions are those that no pick can meet. gRPC ignores them.
var conditions = []protoreflect.Name{"tls_context", "dynamic_metadata", "filter_state", "cookies"}

// match validates what a route matches. It returns false for a route that is left out.
func (v *routeValidator) match(at spot, m *routev3.RouteMatch, to *resource.RouteMatch) bool {
	if m == nil {
		v.reject(at.in("match"), `is absent: write match: {prefix: ""} to take all requests`)
		return false
	}
	if m.GetTlsContext() != nil || len(m.GetDynamicMetadata()) > 0 || len(m.GetFilterState()) > 0 || len(m.GetCookies()) > 0 {
		v.unknownConditions(at, m)
	}
	if len(m.GetQueryParameters()) > 0 {
		v.warnUnapplied(m, "query_parameters", at.in("match.query_parameters"), "is not supported: the route is left out, as gRPC leaves it out")
		return false
	}
	v.path(at, m, to)
	if sensitive := m.GetCaseSensitive(); sensitive != nil {
		to.CaseInsensitive = !sensitive.GetValue()
	}
	v.headers(at, m.GetHeaders(), to)
	if f := m.GetRuntimeFraction(); f != nil {
		to.HasFraction = true
		to.PerMillion = v.fraction(at, f.GetDefaultValue())
	}
	return true
}

func (v *routeValidator) unknownConditions(at spot, m *routev3.RouteMatch) {
	for name := range set(m) {
		switch here := at.in("match." + string(name)); {
		case !slices.Contains(conditions, name):
		case v.byHand:
			v.reject(here, "not supported: picks have no such attribute, so the route would match too many requests")
		default:
			v.warnUnapplied(m, name, here, "is not applied: picks have no such attribute, so the route matches too many requests")
		}
	}
}

func (v *routeValidator) path(at spot, m *routev3.RouteMatch, to *resource.RouteMatch) {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		to.Prefix = &p.Prefix
		if v.byHand && p.Prefix != "" && p.Prefix[0] != '/' {
			v.warn(at.in("match.prefix"), "is %q, and takes nothing: paths begin with /", p.Prefix)
		}
	case *routev3.RouteMatch_Path:
		to.Path = &p.Path
		if v.byHand && !strings.HasPrefix(p.Path, "/") {
			v.warn(at.in("match.path"), "is %q, and takes nothing: paths begin with /", p.Path)
		}
	case *routev3.RouteMatch_SafeRegex:
		to.Regex = v.wholeRegex(at.in("match.safe_regex.regex"), p.SafeRegex.GetRegex())
	case *routev3.RouteMatch_PathSeparatedPrefix:
		v.reject(at.in("match.path_separated_prefix"), "is not supported: write two routes, path: %q and prefix: %q",
			p.PathSeparatedPrefix, p.PathSeparatedPrefix+"/")
	case nil:
		v.reject(at.in("match"), `has no path: write prefix: "" to take all requests`)
	default:
		v.reject(at.in("match."+oneof(m, "path_specifier")), "is not supported: supported are prefix, path and safe_regex")
	}
}

func (v *routeValidator) headers(at spot, list []*routev3.HeaderMatcher, to *resource.RouteMatch) {
	if len(list) == 0 || len(list) > MaxHeaderMatchers && v.tooMany(at.in("match.headers"), len(list), MaxHeaderMatchers, "headers") {
		return
	}
	to.Headers = make([]resource.HeaderMatch, len(list))
	for i, m := range list {
		v.header(at, element("match.headers", i), m, &to.Headers[i])
	}
}

func (v *routeValidator) header(at spot, field string, m *routev3.HeaderMatcher, to *resource.HeaderMatch) {
	to.Name, to.Invert = strings.ToLower(m.GetName()), m.GetInvertMatch()
	if v.byHand {
		v.headerName(at, field+".name", to.Name)
	}
	text := &to.String
	switch h := m.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_ExactMatch:
		text.Value = h.ExactMatch
	case *routev3.HeaderMatcher_PrefixMatch:
		text.Kind, text.Value = resource.MatchPrefix, v.notEmpty(at, field+".prefix_match", h.PrefixMatch)
	case *routev3.HeaderMatcher_SuffixMatch:
		text.Kind, text.Value = resource.MatchSuffix, v.notEmpty(at, field+".suffix_match", h.SuffixMatch)
	case *routev3.HeaderMatcher_ContainsMatch:
		text.Kind, text.Value = resource.MatchContains, v.notEmpty(at, field+".contains_match", h.ContainsMatch)
	case *routev3.HeaderMatcher_SafeRegexMatch:
		text.Kind, text.Regex = resource.MatchRegex, v.wholeRegex(at.in(field+".safe_regex_match.regex"), h.SafeRegexMatch.GetRegex())
	case *routev3.HeaderMatcher_StringMatch:
		*text = v.stringMatch(at.in(field+".string_match"), h.StringMatch)
	case *routev3.HeaderMatcher_RangeMatch:
		to.Kind, to.RangeStart, to.RangeEnd = resource.HeaderRange, h.RangeMatch.GetStart(), h.RangeMatch.GetEnd()
		if to.RangeStart >= to.RangeEnd {
			v.warnByHand(at.in(field+".range_match"), "holds no number: end is exclusive, and must be above start")
		}
	case *routev3.HeaderMatcher_PresentMatch:
		to.Kind, to.Present = resource.HeaderPresent, h.PresentMatch
	default:
		v.reject(at.in(field), "has no condition: write present_match: true, or what the header must be")
	}
}

func (v *routeValidator) notEmpty(at spot, field, text string) string {
	if text == "" {
		v.reject(at.in(field), "is empty: write present_match: true for a header that only must be there")
	}
	return text
}

func (v *routeValidator) headerName(at spot, field, name string) {
	switch {
	case name == "":
		v.reject(at.in(field), "is empty")
	case unprintable(name) != "" || strings.ContainsAny(name, " \t"):
		v.reject(at.in(field), "is %q, which is no name of a header", name)
	case name[0] == ':':
		v.warn(at.in(field), "is %q: a pick never has it, as no RPC's metadata does", name)
	case strings.HasSuffix(name, "-bin"):
		v.warn(at.in(field), "is %q: binary headers count as absent", name)
	}
}

// fraction converts the fraction of the requests that a route matches. gRPC takes an
// unknown denominator as MILLION.
func (v *routeValidator) fraction(at spot, p *typev3.FractionalPercent) uint32 {
	const field = "match.runtime_fraction"
	if v.byHand && p == nil {
		v.reject(at.in(field+".default_value"), "is absent: the route would take no request")
		return 0
	}
	if !v.byHand && typev3.FractionalPercent_DenominatorType_name[int32(p.GetDenominator())] == "" {
		return min(p.GetNumerator(), million)
	}
	return uint32(v.perMillion(at.in(field+".default_value"), p))
}
