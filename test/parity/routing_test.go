package parity_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// hosting has the content of a target's resources: its Listener, routes and clusters. Later
// steps replace its parts, and change only the clusters in place.
type hosting struct {
	target     string
	gone       bool   // there is no Listener
	routesName string // of the RouteConfiguration; empty if the Listener has the routes
	routesGone bool   // there is no RouteConfiguration
	hosts      []virtualHost
	flaw       *routingFlaw // breaks a rule of the Listener or of the routes, if set

	leaves     []*world
	aggregates []*aggregateOf
	// deleted are the clusters that do not exist, withheld those without assignment.
	deleted, withheld map[string]bool
}

// aggregateOf is an aggregate of some of the leaves.
type aggregateOf struct {
	*aggregate

	of    []*world
	split bool // the leaves have their own policies
}

type virtualHost struct {
	name    string
	domains []string
	routes  []*route
}

type route struct {
	name     string
	path     pathCondition
	headers  []headerCondition
	fraction *part // nil takes all
	action   action
	clusters []weighted
	alone    bool // the one cluster has no weight
	hash     []hashedBy
}

// part is a fraction of the requests.
type part struct {
	numerator   uint32
	denominator uint32 // 100, 10,000 or 1,000,000
}

func (p *part) of() float64 { return min(1, float64(p.numerator)/float64(p.denominator)) }

type weighted struct {
	cluster string
	weight  uint32
}

// action is what a route does with a request that it takes. Those that do not forward
// it are JSON.
type action string

const (
	forward  action = "forward"
	redirect action = `{"redirect": {}}`                                             // refused
	answer   action = `{"direct_response": {"status": 404}}`                         // refused
	serving  action = `{"non_forwarding_action": {}}`                                // refused
	byHeader action = `{"cluster_header": "tenant"}`                                 // the route is ignored
	nowhere  action = "no cluster"                                                   // the route is ignored
	queries  action = `{"query_parameters": [{"name": "q", "present_match": true}]}` // the route is ignored
	plugin   action = `{"cluster_specifier_plugin": "plugin"}`                       // the route is ignored
)

// leftOut reports whether the route is ignored.
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

func (c pathCondition) takes(path string) bool { return matches(string(c.kind), c.text, path, c.fold) }

// matches reports whether a value matches a text in the way of a path or header matcher.
func matches(kind, text, value string, fold bool) bool {
	if kind == string(regexPath) {
		return regexp.MustCompile("^(?:" + text + ")$").MatchString(value)
	}
	if fold {
		value, text = strings.ToLower(value), strings.ToLower(text)
	}
	switch kind {
	case string(prefixPath):
		return strings.HasPrefix(value, text)
	case string(suffixHeader):
		return strings.HasSuffix(value, text)
	case string(containsHeader):
		return strings.Contains(value, text)
	default: // exactPath, exactHeader
		return value == text
	}
}

// headerCondition is on a header of a request.
type headerCondition struct {
	header string
	kind   headerKind
	text   string // or the regular expression
	low    int64
	high   int64
	fold   bool // ignore_case, of string_match
	invert bool
	old    bool // the deprecated field instead of string_match
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

// takes reports whether a request meets the condition. An absent header meets only the
// condition that it is absent, and an empty value counts as absent there (gRFC A28).
func (c headerCondition) takes(r *request) bool {
	value, present := r.header(c.header)
	switch c.kind {
	case presentHeader:
		return (present && value != "") != c.invert
	case absentHeader:
		return (present && value != "") == c.invert
	}
	if !present {
		return false
	}
	if c.kind == rangeHeader {
		n, err := strconv.ParseInt(value, 10, 64)
		return (err == nil && c.low <= n && n < c.high) != c.invert
	}
	return matches(string(c.kind), c.text, value, c.fold) != c.invert
}

// hashedBy is one policy of a request's hash.
type hashedBy struct {
	header   string // empty: the channel
	rewrite  string // a regular expression whose matches become "x"
	cookie   bool   // which gRPC ignores
	terminal bool
}

// hashing is the kind of a request's hash.
type hashing string

const (
	byChance  hashing = "by chance"  // random: no policy applies
	byChannel hashing = "by channel" // the same for all of a channel's requests
	byRequest hashing = "by request"
	byMixture hashing = "by channel and request"
)

func (r *route) hashing(req *request) hashing {
	h := byChance
	for _, p := range r.hash {
		_, present := req.header(p.header)
		by := byRequest
		switch {
		case p.cookie, p.header != "" && !present:
			continue
		case p.header == "":
			by = byChannel
		}
		if h == byChance || h == by {
			h = by
		} else {
			h = byMixture
		}
		if p.terminal {
			break
		}
	}
	return h
}

// request is made many times.
type request struct {
	path    string
	headers []header
}

type header struct{ name, value string }

// header joins the values of a header. Binary headers count as absent.
func (r *request) header(name string) (value string, present bool) {
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

// best returns the virtual host with the most specific domain that matches a target's
// name. It is nil if there is none, or if a domain is invalid.
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

// fit returns the rank of a domain's kind, from 1, or 0 if the domain is invalid.
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

// led is a possible destination of a request.
type led struct {
	chance  float64
	cluster string // empty if there is a failure
	failure kind
	hashing hashing
}

// leads lists the destinations of a request in a virtual host, each once. The sum of their
// chances is 1.
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

// merged merges equal destinations. If several routes lead to a cluster, the hash is random, unless it is
// that of the channel alone for all of them.
func merged(all []led) []led {
	var out []led
	for _, l := range all {
		i := slices.IndexFunc(out, func(o led) bool { return o.cluster == l.cluster && o.failure == l.failure })
		if i < 0 {
			out = append(out, l)
			continue
		}
		if out[i].chance += l.chance; out[i].hashing != l.hashing || l.hashing != byChannel {
			out[i].hashing = byChance
		}
	}
	return out
}
