package parity_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hosting is what the resources say of a target: its Listener, its routes, and
// the clusters that these lead to. What is drawn later replaces its parts and
// changes none, but for the clusters.
type hosting struct {
	target string
	// gone is true while there is no Listener.
	gone bool
	// routesName is that of the RouteConfiguration; empty where the Listener has
	// the routes itself.
	routesName string
	hosts      []virtualHost
	// flaw, where set, breaks a rule of the Listener or of the routes.
	flaw *routingFlaw

	leaves     []*world
	aggregates []*aggregateOf
	// deleted are the clusters that the management server has not, withheld those
	// whose assignments it has not.
	deleted, withheld map[string]bool
	// routesGone is true while it has no RouteConfiguration.
	routesGone bool
}

// aggregateOf is a cluster made of some of the leaves.
type aggregateOf struct {
	*aggregate

	of []*world
	// split is true where the leaves have policies of their own.
	split bool
}

// virtualHost is a virtual host.
type virtualHost struct {
	name    string
	domains []string
	routes  []*route
}

// route is one route.
type route struct {
	name     string
	path     pathCondition
	headers  []headerCondition
	fraction *part // nil takes all
	action   action
	clusters []weighted
	// alone is true where the route names its one cluster without a weight.
	alone bool
	hash  []hashedBy
}

// part of a million requests, as numerator and denominator say it.
type part struct {
	numerator   uint32
	denominator uint32 // 100, 10,000 or 1,000,000
}

func (p *part) of() float64 { return min(1, float64(p.numerator)/float64(p.denominator)) }

type weighted struct {
	cluster string
	weight  uint32
}

// action is what becomes of a request that a route takes.
type action string

const (
	forward  action = "forward"
	redirect action = "redirect"           // refused
	answer   action = "direct response"    // refused
	serving  action = "non-forwarding"     // refused
	byHeader action = "cluster_header"     // the route is left out
	nowhere  action = "no cluster"         // the route is left out
	queries  action = "query_parameters"   // the route is left out
	plugin   action = "an optional plugin" // the route is left out
)

// leftOut reports whether the route is as if it was not there.
func (a action) leftOut() bool { return a == byHeader || a == nowhere || a == queries || a == plugin }

// pathCondition is on a request's path.
type pathCondition struct {
	kind pathKind
	text string
	fold bool // case_sensitive: false
}

type pathKind string

const (
	exactPath  pathKind = "path"
	prefixPath pathKind = "prefix"
	regexPath  pathKind = "safe_regex"
)

func (c pathCondition) takes(path string) bool {
	text := c.text
	if c.fold && c.kind != regexPath {
		path, text = strings.ToLower(path), strings.ToLower(text)
	}
	switch c.kind {
	case exactPath:
		return path == text
	case prefixPath:
		return strings.HasPrefix(path, text)
	default:
		return whole(text).MatchString(path)
	}
}

// whole is a regular expression that has to match all of a text.
func whole(text string) *regexp.Regexp { return regexp.MustCompile("^(?:" + text + ")$") }

// headerCondition is on a header of a request.
type headerCondition struct {
	header string
	kind   headerKind
	text   string // or the regular expression
	low    int64
	high   int64
	fold   bool // ignore_case, of string_match
	invert bool
	// old is true for the field that string_match has replaced.
	old bool
}

type headerKind string

const (
	exactHeader    headerKind = "exact"
	prefixHeader   headerKind = "prefix"
	suffixHeader   headerKind = "suffix"
	containsHeader headerKind = "contains"
	regexHeader    headerKind = "safe_regex"
	rangeHeader    headerKind = "range"
	presentHeader  headerKind = "present"
	absentHeader   headerKind = "not present"
)

// takes reports whether a request meets the condition. One whose header is absent
// meets none, but that it is absent (gRFC A28); one with an empty value counts as
// absent there.
func (c headerCondition) takes(r *request) bool {
	value, there := r.header(c.header)
	switch c.kind {
	case presentHeader:
		return (there && value != "") != c.invert
	case absentHeader:
		return (there && value != "") == c.invert
	}
	if !there {
		return false
	}
	return c.meets(value) != c.invert
}

func (c headerCondition) meets(value string) bool {
	text := c.text
	if c.fold && c.kind != regexHeader {
		value, text = strings.ToLower(value), strings.ToLower(text)
	}
	switch c.kind {
	case exactHeader:
		return value == text
	case prefixHeader:
		return strings.HasPrefix(value, text)
	case suffixHeader:
		return strings.HasSuffix(value, text)
	case containsHeader:
		return strings.Contains(value, text)
	case rangeHeader:
		n, err := strconv.ParseInt(value, 10, 64)
		return err == nil && c.low <= n && n < c.high
	default:
		return whole(text).MatchString(value)
	}
}

// hashedBy is one policy of a request's hash.
type hashedBy struct {
	header   string // empty: the channel
	rewrite  string // a regular expression whose matches become "x"
	cookie   bool   // which gRPC passes over
	terminal bool
}

// hashing is what a route's hash policies make of a request.
type hashing string

const (
	byChance  hashing = "by chance"  // none makes one
	byChannel hashing = "by channel" // the same for all of a channel's requests
	byRequest hashing = "by request"
)

func (r *route) hashing(req *request) hashing {
	h := byChance
	for _, p := range r.hash {
		_, there := req.header(p.header)
		switch {
		case p.cookie, p.header != "" && !there:
			continue
		case p.header == "":
			h = byChannel
		case h == byChance:
			h = byRequest
		}
		if p.terminal {
			break
		}
	}
	return h
}

// request is one that is asked for, again and again.
type request struct {
	path    string
	headers []header
}

type header struct{ name, value string }

// header joins the values of a header. Binary ones are as if they were not there.
func (r *request) header(name string) (value string, there bool) {
	name = strings.ToLower(name)
	if strings.HasSuffix(name, "-bin") {
		return "", false
	}
	var values []string
	for _, h := range r.headers {
		if h.name == name {
			values = append(values, h.value)
		}
	}
	return strings.Join(values, ","), len(values) > 0
}

// best returns the virtual host for a target's name: of those with a domain
// that fits, the one whose domain says most. It is nil, too, where a domain is not
// one.
func best(hosts []virtualHost, name string) *virtualHost {
	var found *virtualHost
	rank, length := 0, 0
	for i, h := range hosts {
		for _, domain := range h.domains {
			kind, fits := fit(domain, name)
			if kind == 0 {
				return nil
			}
			if fits && (kind > rank || kind == rank && len(domain) > length) {
				found, rank, length = &hosts[i], kind, len(domain)
			}
		}
	}
	return found
}

// fit tells how much a domain says, from 1; 0 where it is none.
func fit(domain, name string) (kind int, fits bool) {
	switch stars := strings.Count(domain, "*"); {
	case domain == "*":
		return 1, true
	case domain == "":
		return 0, false
	case strings.HasPrefix(domain, "*"):
		return 3, strings.HasSuffix(name, domain[1:])
	case strings.HasSuffix(domain, "*"):
		return 2, strings.HasPrefix(name, domain[:len(domain)-1])
	case stars > 0:
		return 0, false
	}
	return 4, domain == name
}

// led is one way that a request can go.
type led struct {
	chance  float64
	cluster string // empty where there is a failure
	failure kind
	hashing hashing
}

// leads lists the ways that a request can go in a virtual host; their chances come
// to 1. Those to the same cluster are one.
func (h *virtualHost) leads(req *request) []led {
	var all []led
	left := 1.0
	for _, r := range h.routes {
		if r.action.leftOut() || !r.path.takes(req.path) ||
			slices.ContainsFunc(r.headers, func(c headerCondition) bool { return !c.takes(req) }) {
			continue
		}
		taken := left
		if r.fraction != nil {
			taken *= r.fraction.of()
		}
		left -= taken
		all = append(all, r.leads(req, taken)...)
		if r.fraction == nil {
			left = 0
			break
		}
	}
	if left > 0 {
		all = append(all, led{chance: left, failure: noRoute})
	}
	return merged(all)
}

func (r *route) leads(req *request, chance float64) []led {
	if r.action != forward {
		return []led{{chance: chance, failure: unsupported}}
	}
	total := 0.0
	for _, c := range r.clusters {
		total += float64(c.weight)
	}
	var all []led
	for _, c := range r.clusters {
		if c.weight > 0 {
			all = append(all, led{chance: chance * float64(c.weight) / total, cluster: c.cluster, hashing: r.hashing(req)})
		}
	}
	return all
}

// merged makes one of the ways to the same end. Where several routes lead to a
// cluster, the hash is a matter of chance.
func merged(all []led) []led {
	var out []led
	for _, l := range all {
		i := slices.IndexFunc(out, func(o led) bool { return o.cluster == l.cluster && o.failure == l.failure })
		if i < 0 {
			out = append(out, l)
			continue
		}
		if out[i].chance += l.chance; out[i].hashing != l.hashing || l.hashing == byRequest {
			out[i].hashing = byChance
		}
	}
	return out
}
