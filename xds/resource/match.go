package resource

import (
	"math/bits"
	"strconv"
	"strings"
)

// Request has the properties that routes use.
type Request struct {
	// Path is what a route's path is compared with: /package.Service/Method of
	// an RPC.
	Path string
	// Headers may have several values of one name, in order. Routes do not see names that
	// end in -bin (gRFC A28). The default of content-type is application/grpc.
	Headers []Header
	Draw    func() uint64 // uniform random numbers; a route with a runtime fraction uses one
	Trace   *RouteTrace   // is filled in if it is not nil
}

// Header is one value of a header.
type Header struct {
	Name  string // in lower case
	Value string
}

// VirtualHost returns the virtual host of an authority, or nil: the one with the best
// matching domain, in the order exact, *suffix, prefix*, *, then the longest, then the
// first (gRFC A27). Case counts. With an invalid domain, no authority has a virtual host.
func (c *RouteConfiguration) VirtualHost(authority string) *VirtualHost {
	var best *VirtualHost
	var kind domainKind
	length := 0
	for _, h := range c.VirtualHosts {
		for _, domain := range h.Domains {
			k, matches := matchDomain(domain, authority)
			switch {
			case k == domainInvalid:
				return nil
			case !matches || k < kind || k == kind && len(domain) <= length:
			default:
				best, kind, length = h, k, len(domain)
			}
		}
	}
	return best
}

const million = 1_000_000

// domainKind orders the patterns of domains, the better the greater.
type domainKind uint8

const (
	domainInvalid domainKind = iota
	domainAny
	domainPrefix
	domainSuffix
	domainExact
)

// ValidDomain reports whether a domain of a virtual host is a pattern: exact, *suffix,
// prefix* or *.
func ValidDomain(domain string) bool { return kindOfDomain(domain) != domainInvalid }

func kindOfDomain(domain string) domainKind {
	switch {
	case domain == "":
		return domainInvalid
	case domain == "*":
		return domainAny
	case domain[0] == '*':
		return domainSuffix
	case domain[len(domain)-1] == '*':
		return domainPrefix
	case strings.Contains(domain, "*"):
		return domainInvalid
	default:
		return domainExact
	}
}

func matchDomain(domain, authority string) (kind domainKind, matches bool) {
	switch kind = kindOfDomain(domain); kind {
	case domainAny:
		matches = true
	case domainPrefix:
		matches = strings.HasPrefix(authority, domain[:len(domain)-1])
	case domainSuffix:
		matches = strings.HasSuffix(authority, domain[1:])
	case domainExact:
		matches = domain == authority
	case domainInvalid:
	}
	return kind, matches
}

// Route returns the first route that matches the request, or nil. It allocates nothing
// without a trace and without several values of a header.
func (h *VirtualHost) Route(r *Request) *Route {
	for _, route := range h.Routes {
		why := route.Match.misses(r)
		if r.Trace != nil {
			r.Trace.Routes = append(r.Trace.Routes, RouteLook{
				Route: route, Mismatch: why.words(&route.Match, r), HasDraw: why.drawn, Draw: why.draw,
			})
		}
		if why.what == nothing {
			return route
		}
	}
	return nil
}

// Cluster returns the cluster that 64 random bits choose in proportion to the weights, or empty; and
// its part [from, to) of TotalWeight.
func (r *Route) Cluster(draw uint64) (name string, from, to uint64) {
	if len(r.Clusters) == 1 {
		return r.Clusters[0].Name, 0, r.TotalWeight
	}
	at, _ := bits.Mul64(draw, r.TotalWeight)
	for _, c := range r.Clusters {
		if to = from + uint64(c.Weight); at < to {
			return c.Name, from, to
		}
		from = to
	}
	return "", 0, 0
}

// mismatch is why a route does not take a request.
type mismatch struct {
	what   unmatched
	header int // which one, for unmatchedHeader
	drawn  bool
	draw   uint32 // in [0, 1,000,000), where drawn
}

type unmatched uint8

const (
	nothing unmatched = iota
	unmatchedPath
	unmatchedHeader
	unmatchedFraction
)

// misses returns why the route does not match the request. The fraction is drawn last: it
// is one of the requests that match otherwise.
func (m *RouteMatch) misses(r *Request) mismatch {
	if !m.takes(r.Path) {
		return mismatch{what: unmatchedPath}
	}
	for i := range m.Headers {
		if !m.Headers[i].matches(r.Headers) {
			return mismatch{what: unmatchedHeader, header: i}
		}
	}
	if !m.HasFraction {
		return mismatch{}
	}
	draw, _ := bits.Mul64(r.Draw(), million)
	w := mismatch{drawn: true, draw: uint32(draw)}
	if draw >= uint64(m.PerMillion) {
		w.what = unmatchedFraction
	}
	return w
}

func (m *RouteMatch) takes(path string) bool {
	switch {
	case m.Path != nil && m.CaseInsensitive:
		return hasPrefixFold(path, *m.Path) && hasPrefixFold(*m.Path, path)
	case m.Path != nil:
		return path == *m.Path
	case m.Prefix != nil && m.CaseInsensitive:
		return hasPrefixFold(path, *m.Prefix)
	case m.Prefix != nil:
		return strings.HasPrefix(path, *m.Prefix)
	default:
		return m.Regex.MatchString(path)
	}
}

// hasPrefixFold is strings.HasPrefix of both in upper case, as in gRPC. ASCII needs no copy.
func hasPrefixFold(s, prefix string) bool {
	if !ascii(s) || !ascii(prefix) {
		return strings.HasPrefix(strings.ToUpper(s), strings.ToUpper(prefix))
	}
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// matches reports whether the headers match. An absent header matches only HeaderPresent.
func (m *HeaderMatch) matches(headers []Header) bool {
	value, there := headerValue(headers, m.Name)
	switch m.Kind {
	case HeaderPresent:
		return (there && value != "") == (m.Present != m.Invert)
	case HeaderRange:
		n, err := strconv.ParseInt(value, 10, 64)
		return there && (err == nil && m.RangeStart <= n && n < m.RangeEnd) != m.Invert
	default:
		return there && m.String.Matches(value) != m.Invert
	}
}

// Matches reports whether a text matches.
func (m *StringMatch) Matches(s string) bool {
	if m.CaseInsensitive {
		s = strings.ToLower(s)
	}
	switch m.Kind {
	case MatchPrefix:
		return strings.HasPrefix(s, m.Value)
	case MatchSuffix:
		return strings.HasSuffix(s, m.Value)
	case MatchContains:
		return strings.Contains(s, m.Value)
	case MatchRegex:
		return m.Regex.MatchString(s)
	default:
		return s == m.Value
	}
}

// contentType is what gRPC's transport adds to every RPC.
const contentType = "content-type"

// headerValue returns the values of a header that routes see, joined by commas.
func headerValue(headers []Header, name string) (value string, there bool) {
	if strings.HasSuffix(name, "-bin") {
		return "", false
	}
	for i := range headers {
		if headers[i].Name != name {
			continue
		}
		if there {
			return joinValues(headers, name), true
		}
		value, there = headers[i].Value, true
	}
	if !there && name == contentType {
		return "application/grpc", true
	}
	return value, there
}

func joinValues(headers []Header, name string) string {
	var values []string
	for _, h := range headers {
		if h.Name == name {
			values = append(values, h.Value)
		}
	}
	return strings.Join(values, ",")
}
