package resource

import (
	"slices"
	"strconv"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// conditions are those of a route that no pick can meet or miss. gRPC passes
// over all of them.
var conditions = []protoreflect.Name{"tls_context", "dynamic_metadata", "filter_state", "cookies"}

// match judges which requests a route takes. It reports whether the route is to
// be kept.
func (r *routing) match(at spot, m *routev3.RouteMatch, to *RouteMatch) bool {
	if m == nil {
		r.refuse(at.in("match"), `is absent: write match: {prefix: ""} to take all requests`)
		return false
	}
	if m.GetTlsContext() != nil || len(m.GetDynamicMetadata()) > 0 || len(m.GetFilterState()) > 0 || len(m.GetCookies()) > 0 {
		r.unknownConditions(at, m)
	}
	if len(m.GetQueryParameters()) > 0 {
		r.warnUnapplied(m, "query_parameters", at.in("match.query_parameters"), "is not supported: the route is left out, as gRPC leaves it out")
		return false
	}
	r.path(at, m, to)
	if sensitive := m.GetCaseSensitive(); sensitive != nil {
		to.CaseInsensitive = !sensitive.GetValue()
	}
	r.headers(at, m.GetHeaders(), to)
	if f := m.GetRuntimeFraction(); f != nil {
		to.HasFraction = true
		to.PerMillion = r.fraction(at, f.GetDefaultValue())
	}
	return true
}

// unknownConditions judges the conditions that no pick has.
func (r *routing) unknownConditions(at spot, m *routev3.RouteMatch) {
	for name := range set(m) {
		switch here := at.in("match." + string(name)); {
		case !slices.Contains(conditions, name):
		case r.byHand:
			r.refuse(here, "is not supported: a pick has none, and the route would take more than is meant")
		default:
			r.warnUnapplied(m, name, here, "is not applied: a pick has none, and the route takes more than is meant")
		}
	}
}

// path judges the path of a route's match.
func (r *routing) path(at spot, m *routev3.RouteMatch, to *RouteMatch) {
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		prefix := p.Prefix
		to.Prefix = &prefix
		if r.byHand && prefix != "" && prefix[0] != '/' {
			r.warn(at.in("match.prefix"), "is %q, and takes nothing: paths begin with /", prefix)
		}
	case *routev3.RouteMatch_Path:
		path := p.Path
		to.Path = &path
		if r.byHand && (path == "" || path[0] != '/') {
			r.warn(at.in("match.path"), "is %q, and takes nothing: paths begin with /", path)
		}
	case *routev3.RouteMatch_SafeRegex:
		to.Regex = r.wholeRegex(at.in("match.safe_regex.regex"), p.SafeRegex.GetRegex())
	case *routev3.RouteMatch_PathSeparatedPrefix:
		r.refuse(at.in("match.path_separated_prefix"), "is not supported: write two routes, path: %q and prefix: %q",
			p.PathSeparatedPrefix, p.PathSeparatedPrefix+"/")
	case nil:
		r.refuse(at.in("match"), `has no path: write prefix: "" to take all requests`)
	default:
		r.refuse(at.in("match."+oneof(m, "path_specifier")), "is not supported: supported are prefix, path and safe_regex")
	}
}

// oneof names the field of a oneof that is set.
func oneof(m proto.Message, name string) string {
	r := m.ProtoReflect()
	for i := range r.Descriptor().Oneofs().Len() {
		of := r.Descriptor().Oneofs().Get(i)
		if string(of.Name()) != name {
			continue
		}
		if fd := r.WhichOneof(of); fd != nil {
			return string(fd.Name())
		}
	}
	return ""
}

func (r *routing) headers(at spot, list []*routev3.HeaderMatcher, to *RouteMatch) {
	if len(list) == 0 {
		return
	}
	if r.byHand && len(list) > MaxHeaderMatchers {
		r.refuse(at.in("match.headers"), "holds %d headers, of at most %d", len(list), MaxHeaderMatchers)
		return
	}
	to.Headers = make([]HeaderMatch, len(list))
	for i, m := range list {
		r.header(at, "match.headers["+strconv.Itoa(i)+"]", m, &to.Headers[i])
	}
}

// header judges a condition on a header.
func (r *routing) header(at spot, field string, m *routev3.HeaderMatcher, to *HeaderMatch) {
	to.Name, to.Invert = strings.ToLower(m.GetName()), m.GetInvertMatch()
	if r.byHand {
		r.headerName(at, field+".name", to.Name)
	}
	text := &to.String
	switch h := m.GetHeaderMatchSpecifier().(type) {
	case *routev3.HeaderMatcher_ExactMatch:
		text.Value = h.ExactMatch
	case *routev3.HeaderMatcher_PrefixMatch:
		text.Kind, text.Value = MatchPrefix, r.notEmpty(at, field+".prefix_match", h.PrefixMatch)
	case *routev3.HeaderMatcher_SuffixMatch:
		text.Kind, text.Value = MatchSuffix, r.notEmpty(at, field+".suffix_match", h.SuffixMatch)
	case *routev3.HeaderMatcher_ContainsMatch:
		text.Kind, text.Value = MatchContains, r.notEmpty(at, field+".contains_match", h.ContainsMatch)
	case *routev3.HeaderMatcher_SafeRegexMatch:
		text.Kind, text.Regex = MatchRegex, r.wholeRegex(at.in(field+".safe_regex_match.regex"), h.SafeRegexMatch.GetRegex())
	case *routev3.HeaderMatcher_StringMatch:
		*text = r.stringMatch(at.in(field+".string_match"), h.StringMatch)
	case *routev3.HeaderMatcher_RangeMatch:
		to.Kind, to.RangeStart, to.RangeEnd = HeaderRange, h.RangeMatch.GetStart(), h.RangeMatch.GetEnd()
		if to.RangeStart >= to.RangeEnd {
			r.warnByHand(at.in(field+".range_match"), "holds no number: end is exclusive, and must be above start")
		}
	case *routev3.HeaderMatcher_PresentMatch:
		to.Kind, to.Present = HeaderPresent, h.PresentMatch
	default:
		r.refuse(at.in(field), "has no condition: write present_match: true, or what the header must be")
	}
}

// notEmpty returns text, which must not be empty.
func (r *routing) notEmpty(at spot, field, text string) string {
	if text == "" {
		r.refuse(at.in(field), "is empty: write present_match: true for a header that only must be there")
	}
	return text
}

// headerName judges the name of a header that a route looks at.
func (r *routing) headerName(at spot, field, name string) {
	switch {
	case name == "":
		r.refuse(at.in(field), "is empty")
	case unprintable(name) != "" || strings.ContainsAny(name, " \t"):
		r.refuse(at.in(field), "is %q, which is no name of a header", name)
	case name[0] == ':':
		r.warn(at.in(field), "is %q: a pick never has it, as no RPC's metadata does", name)
	case strings.HasSuffix(name, "-bin"):
		r.warn(at.in(field), "is %q: binary headers count as absent", name)
	}
}

// stringMatch judges a StringMatcher.
func (v *verdict) stringMatch(field string, m *matcherv3.StringMatcher) StringMatch {
	to := StringMatch{CaseInsensitive: m.GetIgnoreCase()}
	name := ""
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		to.Value = p.Exact
	case *matcherv3.StringMatcher_Prefix:
		to.Kind, to.Value, name = MatchPrefix, p.Prefix, "prefix"
	case *matcherv3.StringMatcher_Suffix:
		to.Kind, to.Value, name = MatchSuffix, p.Suffix, "suffix"
	case *matcherv3.StringMatcher_Contains:
		to.Kind, to.Value, name = MatchContains, p.Contains, "contains"
	case *matcherv3.StringMatcher_SafeRegex:
		if to.CaseInsensitive {
			v.warnByHand(field+".ignore_case", "is not applied: write (?i) in the regular expression")
		}
		return StringMatch{Kind: MatchRegex, Regex: v.wholeRegex(field+".safe_regex.regex", p.SafeRegex.GetRegex())}
	default:
		v.refuse(field, "is none of exact, prefix, suffix, contains and safe_regex")
	}
	if name != "" && to.Value == "" {
		v.refuse(join(field, name), "is empty")
	}
	if to.CaseInsensitive {
		to.Value = strings.ToLower(to.Value)
	}
	return to
}

// fraction converts the part of the requests that a route takes to parts per
// million. gRPC takes an unknown denominator as MILLION.
func (r *routing) fraction(at spot, p *typev3.FractionalPercent) uint32 {
	const field = "match.runtime_fraction"
	if r.byHand && p == nil {
		r.refuse(at.in(field+".default_value"), "is absent: the route would take no request")
		return 0
	}
	if !r.byHand && typev3.FractionalPercent_DenominatorType_name[int32(p.GetDenominator())] == "" {
		return min(p.GetNumerator(), million)
	}
	return uint32(r.perMillion(at.in(field+".default_value"), p))
}
