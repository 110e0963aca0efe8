package parity_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
)

// hostingBounds are the bounds of a target's clusters.
var hostingBounds = bounds{priorities: 3, localities: 8, upstreams: 32}

// drawnRequests is the number of different requests to a target.
const drawnRequests = 8

// hostingDrawing draws a target.
type hostingDrawing struct {
	*drawing

	hosting  *hosting
	requests []*request
	routes   int // drawn so far, for their names
}

func (d *hostingDrawing) beginHosting(name string) {
	d.hosting = &hosting{target: name + ".shop.parity", deleted: make(map[string]bool), withheld: make(map[string]bool)}
	for i := range 2 + d.IntN(3) {
		d.world = &world{cluster: fmt.Sprintf("cluster%d-%s", i, name)}
		d.leaves = append(d.leaves, d.world)
		d.beginLeaf(fmt.Sprintf("%d-%s", i, name))
		d.modest()
		if i == 0 && d.chance(2) { // so that routes' hashes show
			for !d.world.policy.hashes {
				d.changePolicy()
			}
		}
	}
	d.hosting.leaves = d.leaves
	if d.chance(2) {
		d.hosting.aggregates = []*aggregateOf{{
			aggregate: &aggregate{name: "aggregate-" + name, nested: d.chance(2)},
			of:        slices.Clone(d.leaves[:2+d.IntN(len(d.leaves)-1)]),
			split:     d.chance(4),
		}}
		d.changeAggregate()
	}
	for range drawnRequests {
		d.requests = append(d.requests, d.request())
	}
	d.requests[0].headers = []header{{"tenant", ""}, {"version", "17"}}
	d.moveRoutes()
	d.hosting.routesGone = false
	if d.changeHosts(); d.chance(8) {
		d.breakRouting()
	}
}

// modest removes most of the limits that would fail nearly all picks.
func (d *hostingDrawing) modest() {
	if d.chance(4) {
		return
	}
	d.world.thresholds = nil
	if d.chance(2) {
		d.world.drops = nil
	}
}

var (
	paths      = []string{"/shop.Cart/Add", "/shop.Cart/Remove", "/shop.Stock/Get", "/SHOP.cart/add", "/admin.Tool/Run"}
	pathTexts  = []string{"", "/", "/shop.", "/shop.Cart/", "/SHOP.Cart/Add", "/shop.Cart/Add", "/admin.Tool/Run", "/shop.Stock", "shop"}
	pathRegexs = []string{"/shop.*", `/shop\.(Cart|Stock)/.*`, "/shop.Cart", ".*Add", `/[a-z]+\.Tool/Run`, "(?i)/shop.cart/add"}

	names   = []string{"tenant", "tenant", "version", "user", "x-none"}
	tenants = []string{"a", "b", "A", "abc", "", "", "application/grpc"}
	numbers = []string{"1", "17", "-3", "042", "x", "9223372036854775808"}
)

func (d *hostingDrawing) request() *request {
	r := &request{path: one(d.drawing, paths), headers: []header{{"user", fmt.Sprintf("user-%d", d.IntN(1000))}}}
	for range d.IntN(3) {
		r.headers = append(r.headers, header{"tenant", one(d.drawing, tenants)})
	}
	if d.chance(2) {
		r.headers = append(r.headers, header{"version", one(d.drawing, numbers)})
	}
	if d.chance(4) {
		r.headers = append(r.headers, header{"blob-bin", "b"})
	}
	return r
}

// clusterNames are the possible clusters of routes.
func (d *hostingDrawing) clusterNames() (all []string) {
	for _, w := range d.leaves {
		all = append(all, w.cluster)
	}
	for _, a := range d.hosting.aggregates {
		all = append(all, a.name)
	}
	return all
}

func (d *hostingDrawing) route() *route {
	d.routes++
	r := &route{name: fmt.Sprintf("r%d", d.routes), action: forward, path: d.path()}
	if d.chance(2) {
		for range 1 + d.skewed(2) {
			r.headers = append(r.headers, d.headerCondition())
		}
	}
	if d.chance(4) {
		r.fraction = d.part()
	}
	if d.chance(8) {
		r.action = one(d.drawing, []action{redirect, answer, serving, byHeader, nowhere, queries, plugin})
	}
	if r.alone = d.chance(2); r.alone {
		r.clusters = []weighted{{one(d.drawing, d.clusterNames()), 1}}
	} else {
		for range 1 + d.IntN(3) {
			r.clusters = append(r.clusters, weighted{one(d.drawing, d.clusterNames()), d.weight()})
		}
		if d.chance(6) {
			r.clusters = append(r.clusters, weighted{"absent-" + d.hosting.target, uint32(d.skewed(8) / 7)}) // mostly 0
		}
	}
	for range d.IntN(4) {
		r.hash = append(r.hash, d.hashedBy())
	}
	return r
}

func (d *hostingDrawing) path() pathCondition {
	c := pathCondition{kind: one(d.drawing, []pathKind{prefixPath, prefixPath, exactPath, regexPath}), fold: d.chance(4)}
	if c.text = one(d.drawing, pathTexts); c.kind == regexPath {
		c.text = one(d.drawing, pathRegexs)
	}
	return c
}

func (d *hostingDrawing) part() *part {
	p := &part{denominator: one(d.drawing, []uint32{100, 10_000, 1_000_000})}
	if p.numerator = d.Uint32N(p.denominator); d.chance(5) {
		p.numerator = one(d.drawing, []uint32{0, p.denominator, p.denominator + 1})
	}
	return p
}

func (d *hostingDrawing) headerCondition() headerCondition {
	c := headerCondition{
		header: one(d.drawing, names), invert: d.chance(3), fold: d.chance(4), old: d.chance(2),
		kind: one(d.drawing, []headerKind{
			exactHeader, prefixHeader, suffixHeader, containsHeader, regexHeader, rangeHeader, rangeHeader, presentHeader, absentHeader,
		}),
	}
	switch c.kind {
	case exactHeader:
		c.text = one(d.drawing, []string{"a", "a,b", "A", "", "application/grpc", "user-1"})
	case regexHeader:
		c.text = one(d.drawing, []string{"a.*", "[ab]", "", "user-[0-4].*", `-?\d+`})
	case rangeHeader:
		c.header = one(d.drawing, []string{"version", "version", "tenant"})
		c.low, c.high = one(d.drawing, []int64{-4, -3, 1, 2, 17}), one(d.drawing, []int64{-3, 1, 17, 18, 42, 43})
	default:
		c.text = one(d.drawing, []string{"a", "B", "user-", "grpc", "1", "c"})
	}
	if c.old {
		c.fold = false // the old fields have none
	}
	if d.chance(8) {
		c.header = strings.ToUpper(c.header[:1]) + c.header[1:]
	}
	return c
}

func (d *hostingDrawing) hashedBy() hashedBy {
	h := hashedBy{header: one(d.drawing, []string{"user", "user", "user", "tenant", "version", "blob-bin", "x-none"}), terminal: d.chance(3)}
	switch {
	case d.chance(8):
		h.header = ""
	case d.chance(8):
		h.cookie = true
	case d.chance(4):
		h.rewrite = one(d.drawing, []string{"[0-9]", "^user", "z"})
	}
	return h
}

// changeHosts draws new virtual hosts.
func (d *hostingDrawing) changeHosts() string {
	var hosts []virtualHost
	for i := range 1 + d.IntN(3) {
		h := virtualHost{name: fmt.Sprintf("h%d", i), routes: d.someRoutes()}
		for range 1 + d.IntN(2) {
			h.domains = append(h.domains, d.domain())
		}
		hosts = append(hosts, h)
	}
	d.hosting.hosts = hosts
	if best(hosts, d.hosting.target) == nil && !d.chance(6) {
		hosts[0].domains = []string{"*"}
		for i := range hosts[1:] {
			hosts[1+i].domains = []string{"elsewhere"}
		}
	}
	return "virtual hosts change"
}

func (d *hostingDrawing) domain() string {
	name := d.hosting.target
	host, rest, _ := strings.Cut(name, ".")
	if d.chance(40) {
		return one(d.drawing, []string{"", "s*p"})
	}
	return one(d.drawing, []string{
		name, "*", "*." + rest, "*parity", "*" + name, host + ".*", host + ".shop.*", name + "*", "elsewhere", "*.elsewhere", "else*", strings.ToUpper(name),
	})
}

func (d *hostingDrawing) someRoutes() []*route {
	var routes []*route
	for range d.IntN(6) {
		routes = append(routes, d.route())
	}
	if !d.chance(6) { // a default route
		last := d.route()
		last.action, last.headers, last.fraction = forward, nil, nil
		last.path = pathCondition{kind: prefixPath}
		routes = append(routes, last)
	}
	return routes
}

// changeRoutes changes the routes of the target's virtual host.
func (d *hostingDrawing) changeRoutes() string {
	hosts := slices.Clone(d.hosting.hosts)
	h := best(hosts, d.hosting.target)
	if h == nil {
		return ""
	}
	h.routes = slices.Clone(h.routes)
	d.hosting.hosts = hosts
	switch n := len(h.routes); {
	case n == 0 || d.chance(4):
		h.routes = d.someRoutes()
		return "routes change"
	case d.chance(3):
		h.routes = slices.Insert(h.routes, d.IntN(n+1), d.route())
		return "a route comes"
	case d.chance(3):
		i := d.IntN(n)
		h.routes = slices.Delete(h.routes, i, i+1)
		return "a route goes"
	case n > 1 && d.chance(2):
		d.Shuffle(n, func(i, j int) { h.routes[i], h.routes[j] = h.routes[j], h.routes[i] })
		return "routes change places"
	default:
		i := d.IntN(n)
		other := d.route()
		other.path, other.headers = h.routes[i].path, h.routes[i].headers
		h.routes[i] = other
		return "a route leads elsewhere"
	}
}

// moveRoutes moves the routes to the Listener, or to one of two RouteConfigurations.
func (d *hostingDrawing) moveRoutes() string {
	to := one(d.drawing, []string{"", "", "routes-a-" + d.hosting.target, "routes-b-" + d.hosting.target})
	if to == d.hosting.routesName {
		return ""
	}
	d.hosting.routesName, d.hosting.routesGone = to, to != "" && d.chance(15)
	if d.hosting.routesGone {
		return "the routes are to be in " + to + ", which does not exist"
	}
	return "the routes are now in " + to
}

func (d *hostingDrawing) breakRouting() string {
	d.hosting.flaw = one(d.drawing, routingFlaws)
	return "broken: " + d.hosting.flaw.name
}

func (d *hostingDrawing) breakLeaf() string {
	d.world = one(d.drawing, d.leaves)
	f := one(d.drawing, flaws)
	if !f.fits(d.world.assignmentResource()) {
		return ""
	}
	d.world.flaw = &f
	return d.world.cluster + ": broken: " + f.name
}

// deleteSome deletes the Listener or a cluster.
func (d *hostingDrawing) deleteSome() string {
	if d.chance(3) {
		d.hosting.gone = true
		return "the Listener is deleted"
	}
	if d.hosting.routesName != "" && !d.hosting.routesGone && d.chance(4) {
		d.hosting.routesGone = true
		return "the RouteConfiguration is withheld"
	}
	name := one(d.drawing, d.clusterNames())
	if d.chance(3) {
		d.hosting.withheld = maps.Clone(d.hosting.withheld)
		d.hosting.withheld[name] = true
		return name + ": the assignment is withheld"
	}
	if d.hosting.deleted[name] {
		return ""
	}
	d.hosting.deleted = maps.Clone(d.hosting.deleted)
	d.hosting.deleted[name] = true
	return name + " is deleted"
}

// restoreAll restores all deleted resources.
func (d *hostingDrawing) restoreAll() string {
	h := d.hosting
	if !h.gone && !h.routesGone && len(h.deleted)+len(h.withheld) == 0 {
		return ""
	}
	h.gone, h.routesGone, h.deleted, h.withheld = false, false, make(map[string]bool), make(map[string]bool)
	return "what was deleted is back"
}

func (d *hostingDrawing) changeAggregate() string {
	if len(d.hosting.aggregates) == 0 {
		return ""
	}
	a := d.hosting.aggregates[0]
	p, asked := one(d.drawing, lbPolicies), &clusterv3.Cluster{}
	p.ask(d.drawing, asked)
	if a.split {
		a.policy, a.asked = p, asked
	} else {
		a.agree(p, asked, a.of)
	}
	if d.chance(2) {
		d.Shuffle(len(a.of), func(i, j int) { a.of[i], a.of[j] = a.of[j], a.of[i] })
	}
	return a.name + ": " + p.name
}

func (d *hostingDrawing) changeLeaf() string {
	d.world = one(d.drawing, d.leaves)
	what := one(d.drawing, []func() string{
		d.failPriority, d.recoverPriority, d.changeWeights, d.moveLocality, d.changeHealth, d.changeEndpoints, d.changeLocalities,
		d.changePolicy, d.changePolicy, d.changeLimits, d.empty,
	})()
	d.world.compact()
	for _, a := range d.hosting.aggregates {
		if !a.split && slices.Contains(a.of, d.world) {
			a.agree(d.world.policy, d.world.asked, a.of)
		}
	}
	if what == "" {
		return ""
	}
	return d.world.cluster + ": " + what
}

// stepHosting makes one or two changes of the target or the network, and returns their
// description. What the clients request for the first time must exist, or they would wait
// for it; what only one of them requests must be valid.
func (d *hostingDrawing) stepHosting(known *lastGood) string {
	d.hosting.flaw = nil
	for _, w := range d.leaves {
		w.flaw = nil
	}
	steps := []func() string{
		d.changeRoutes, d.changeRoutes, d.changeRoutes, d.changeHosts, d.moveRoutes, d.breakRouting, d.breakRouting,
		d.breakLeaf, d.deleteSome, d.deleteSome, d.restoreAll, d.changeAggregate, d.changeLeaf, d.changeLeaf,
		d.stopSome, d.startSome, d.changeSome, d.resend,
	}
	var changes []string
	for n := 1 + d.IntN(2); len(changes) < n; {
		if what := one(d.drawing, steps)(); what != "" {
			changes = append(changes, what)
		}
	}
	restore := func(missing *map[string]bool, what string, keep func() bool) {
		for _, name := range slices.Sorted(maps.Keys(*missing)) {
			if (known.failure != "" || !known.wants[name]) && !keep() {
				*missing = maps.Clone(*missing)
				delete(*missing, name)
				changes = append(changes, name+what)
			}
		}
	}
	restore(&d.hosting.deleted, " is not deleted", func() bool { return false })
	restore(&d.hosting.withheld, ": the assignment is not withheld", func() bool { return d.chance(10) })
	for _, w := range d.leaves {
		if w.flaw != nil && (known.failure != "" || known.passedOver[w.cluster]) {
			w.flaw = nil
			changes = append(changes, w.cluster+" is not broken")
		}
	}
	return strings.Join(changes, "; ")
}
