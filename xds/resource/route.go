package resource

import (
	"regexp"
)

// RouteConfiguration is a RouteConfiguration (RDS). A value is never changed
// after decoding.
type RouteConfiguration struct {
	// Name is empty for an inline one that bears none.
	Name         string
	VirtualHosts []*VirtualHost
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
	// Index is where the route stands in its virtual host as it was written:
	// some routes are left out, as gRPC leaves them out.
	Index int
	// Clusters are drawn by weight; none where lbd cannot follow the route's
	// action. Unsupported then names the action, such as redirect, or is "none".
	// A request that such a route takes has no cluster.
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

// RouteMatch is what a request must be for a route to be taken.
type RouteMatch struct {
	// Exactly one of Path, Prefix and Regex counts: Path or Prefix where it is
	// not nil, else Regex, which matches whole paths only.
	Path, Prefix *string
	Regex        *regexp.Regexp
	// CaseInsensitive is for Path and Prefix.
	CaseInsensitive bool
	Headers         []HeaderMatch
	// PerMillion is the part of the requests that the route takes, where
	// HasFraction is true.
	PerMillion  uint32
	HasFraction bool
}

// HeaderMatch is a condition on one header. Several values of a header are
// joined by commas.
type HeaderMatch struct {
	Name   string // in lower case
	Invert bool
	// Kind says which of the fields below counts.
	Kind HeaderMatchKind
	// String is for HeaderString.
	String StringMatch
	// RangeStart and RangeEnd (exclusive) are for HeaderRange.
	RangeStart, RangeEnd int64
	// Present is for HeaderPresent.
	Present bool
}

// HeaderMatchKind is how a header is looked at.
type HeaderMatchKind uint8

// The kinds of header matchers.
const (
	HeaderString HeaderMatchKind = iota
	HeaderRange
	HeaderPresent
)

// StringMatch is a condition on a text (envoy.type.matcher.v3.StringMatcher).
type StringMatch struct {
	Kind StringMatchKind
	// Value is in lower case where CaseInsensitive; empty for MatchRegex.
	Value           string
	CaseInsensitive bool
	// Regex is for MatchRegex; it matches whole texts only.
	Regex *regexp.Regexp
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
	// Header, in lower case, is hashed, where it is not empty; else the channel's
	// own id is, the same for all picks of a target.
	Header string
	// Regex and Substitution rewrite the header's value before; Regex may be
	// nil.
	Regex        *regexp.Regexp
	Substitution string
	// Terminal ends the list where this policy made a hash.
	Terminal bool
}
