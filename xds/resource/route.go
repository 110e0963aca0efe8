package resource

import (
	"regexp"
	"slices"
)

// RouteConfiguration is a RouteConfiguration (RDS). It is immutable.
type RouteConfiguration struct {
	Name         string // may be empty if it is inline
	VirtualHosts []*VirtualHost
}

// Clusters returns the names of the clusters that the routes lead to, sorted.
func (c *RouteConfiguration) Clusters() []string {
	var names []string
	for _, h := range c.VirtualHosts {
		for _, r := range h.Routes {
			for _, to := range r.Clusters {
				names = append(names, to.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// VirtualHost is the routes of some domains.
type VirtualHost struct {
	Name string
	// Domains are patterns: exact, *suffix, prefix*, or *.
	Domains []string
	// Routes are tried in order; the first that matches is taken.
	Routes []*Route
}

// Route is one route of a virtual host.
type Route struct {
	Name  string
	Match RouteMatch
	// Index is the route's original index in its virtual host: as in gRPC, some routes are
	// left out.
	Index int
	// Clusters are drawn by weight. There are none if lbd does not support the route's
	// action: Unsupported then names it, such as redirect, or is "none".
	Clusters    []WeightedCluster
	TotalWeight uint64
	Unsupported string
	// Hash are the request hash policies, in order (gRFC A42).
	Hash []HashPolicy
}

// WeightedCluster is one of the clusters of a route.
type WeightedCluster struct {
	Name   string
	Weight uint32
}

// RouteMatch is the conditions of a route on a request.
type RouteMatch struct {
	// One of Path, Prefix and Regex is set; Regex matches only whole paths.
	Path, Prefix    *string
	Regex           *regexp.Regexp
	CaseInsensitive bool // of Path and Prefix
	Headers         []HeaderMatch
	PerMillion      uint32 // the fraction of requests that the route takes, if HasFraction
	HasFraction     bool
}

// HeaderMatch is a condition on one header. Several values of a header are
// joined by commas.
type HeaderMatch struct {
	Name   string // in lower case
	Invert bool
	Kind   HeaderMatchKind

	String               StringMatch // of HeaderString
	RangeStart, RangeEnd int64       // of HeaderRange; the end is exclusive
	Present              bool        // of HeaderPresent
}

// HeaderMatchKind is the kind of a HeaderMatch.
type HeaderMatchKind uint8

// The kinds of header matchers.
const (
	HeaderString HeaderMatchKind = iota
	HeaderRange
	HeaderPresent
)

// StringMatch is a condition on a text (envoy.type.matcher.v3.StringMatcher).
type StringMatch struct {
	Kind            StringMatchKind
	Value           string // in lower case if CaseInsensitive; empty for MatchRegex
	CaseInsensitive bool
	Regex           *regexp.Regexp // of MatchRegex; it matches only whole texts
}

// StringMatchKind is how a text is compared.
type StringMatchKind uint8

// The kinds of string matchers.
const (
	MatchExact StringMatchKind = iota
	MatchPrefix
	MatchSuffix
	MatchContains
	MatchRegex
)

// HashPolicy is one way to make a request's hash.
type HashPolicy struct {
	// Header, in lower case, is hashed. If it is empty, the channel's own id is, the same
	// for all picks of a target.
	Header string
	// Regex and Substitution rewrite the header's value before; Regex may be nil.
	Regex        *regexp.Regexp
	Substitution string
	Terminal     bool // no later policy is used if this one made a hash
}
