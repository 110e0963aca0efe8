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
	// Clusters are drawn by weight; none where lbd cannot follow the route's
	// action, and Unsupported says which it is.
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
	// not nil, else Regex.
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
	Name   string
	Invert bool
	// Kind says which of the fields below counts.
	Kind HeaderMatchKind
	// String matchers' value; CaseInsensitive is for them.
	Value           string
	CaseInsensitive bool
	Regex           *regexp.Regexp
	// RangeStart and RangeEnd (exclusive) are for HeaderRange.
	RangeStart, RangeEnd int64
	Present              bool
}

// HeaderMatchKind is how a header is looked at.
type HeaderMatchKind uint8

// The kinds of header matchers.
const (
	HeaderExact HeaderMatchKind = iota
	HeaderPrefix
	HeaderSuffix
	HeaderContains
	HeaderRegex
	HeaderRange
	HeaderPresent
)

// HashPolicy is one way to make a request's hash.
type HashPolicy struct {
	// Header is hashed, where it is not empty; else the channel's own id is,
	// the same for all picks of a target.
	Header string
	// Regex and Substitution rewrite the header's value before; Regex may be
	// nil.
	Regex        *regexp.Regexp
	Substitution string
	// Terminal ends the list where this policy made a hash.
	Terminal bool
}
