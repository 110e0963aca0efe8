package parity_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
)

// The bounds of what is drawn.
const (
	maxPriorities = 5
	maxWeight     = 1000
)

// bounds are those of one cluster, and of all endpoints.
type bounds struct{ priorities, localities, upstreams int }

// drawing draws a scenario from one seed.
type drawing struct {
	*rand.Rand
	net *upstreams
	max bounds
	// leaves are the clusters with endpoints, in order; world is the current one.
	leaves    []*world
	world     *world
	aggregate *aggregate // nil if there is one cluster only
	zones     int
}

// chance reports true in one of n cases.
func (d *drawing) chance(n int) bool { return d.IntN(n) == 0 }

// one draws an element.
func one[E any](d *drawing, s []E) E { return s[d.IntN(len(s))] }

// some draws a non-empty part of s.
func some[E any](d *drawing, s []E) []E {
	out := slices.Clone(s)
	d.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:min(len(out), 1+d.skewed(len(out)))]
}

// skewed draws from [0, n), small numbers more often.
func (d *drawing) skewed(n int) int {
	return int(math.Pow(float64(n+1), d.Float64())) - 1
}

// begin draws the first world, or the leaves of an aggregate, and which upstreams listen.
func (d *drawing) begin(name string) {
	n := 1
	if d.chance(4) {
		n = 2 + d.IntN(2)
		d.aggregate = &aggregate{name: "aggregate-" + name, nested: d.chance(2)}
	}
	for i := range n {
		d.world = &world{cluster: fmt.Sprintf("cluster%d-%s", i, name)}
		d.leaves = append(d.leaves, d.world)
		d.beginLeaf(fmt.Sprintf("%d-%s", i, name))
	}
}

func (d *drawing) beginLeaf(name string) {
	d.changePolicy()
	if d.chance(2) {
		d.world.service = "service" + name
	}
	d.drawThresholds()
	d.drawDrops()
	priorities := 1 + d.IntN(d.max.priorities)
	for range 1 + d.skewed(d.max.localities) {
		d.addLocality(uint32(d.IntN(priorities)))
	}
	d.world.compact()
	for p := range uint32(maxPriorities) {
		d.startOf(p)
	}
}

// target is the cluster of all calls.
func (d *drawing) target() string {
	if d.aggregate != nil {
		return d.aggregate.name
	}
	return d.world.cluster
}

// policy is the root's policy.
func (d *drawing) policy() *lbPolicy {
	if d.aggregate != nil {
		return d.aggregate.policy
	}
	return d.world.policy
}

// resources returns the xDS resources of a target.
func (d *drawing) resources(target string) resources {
	r := resources{listener: listenerFor(target, d.target())}
	if d.aggregate != nil {
		r.clusters = d.aggregate.resources(d.leaves)
	}
	for _, w := range d.leaves {
		c, a := w.resources()
		r.clusters, r.assignments = append(r.clusters, c), append(r.assignments, a)
	}
	return r
}

// startOf starts most upstreams of a priority; none in one of three cases.
func (d *drawing) startOf(priority uint32) {
	dead := d.chance(3)
	for _, l := range d.world.localities {
		if l.priority != priority {
			continue
		}
		for _, u := range l.upstreams() {
			if !dead && !d.chance(6) {
				u.want = true
			}
		}
	}
}

func (d *drawing) addLocality(priority uint32) *locality {
	l := &locality{zone: d.zones, priority: priority, weight: d.weight()}
	d.zones++
	if d.chance(8) { // the name of one at another priority
		if other := d.locality(); other != nil && !d.has(other.zone, priority) {
			l.zone = other.zone
		}
	}
	if d.chance(25) {
		l.weight = 0
	}
	for range d.skewed(8) + min(1, d.IntN(12)) {
		d.addEndpoint(l)
	}
	d.world.localities = append(d.world.localities, l)
	return l
}

// has reports whether a priority has a locality.
func (d *drawing) has(zone int, priority uint32) bool {
	return slices.ContainsFunc(d.world.localities, func(l *locality) bool { return l.zone == zone && l.priority == priority })
}

// weight draws from 1 to maxWeight, and often 1.
func (d *drawing) weight() uint32 {
	if d.chance(3) {
		return 1
	}
	return 1 + d.Uint32N(maxWeight)
}

func (d *drawing) addEndpoint(l *locality) {
	e := &endpoint{health: d.health(), weight: d.Uint32N(4)}
	for range 1 + min(1, 3*d.skewed(2)/2*min(1, d.skewed(4))) {
		if len(d.net.all) < d.max.upstreams {
			e.upstreams = append(e.upstreams, d.net.add())
		}
	}
	if len(e.upstreams) > 0 {
		l.endpoints = append(l.endpoints, e)
	}
}

var healths = []corev3.HealthStatus{
	corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_DRAINING, corev3.HealthStatus_TIMEOUT, corev3.HealthStatus_DEGRADED,
}

func (d *drawing) health() corev3.HealthStatus {
	switch d.IntN(8) {
	case 0:
		return one(d, healths)
	case 1, 2:
		return corev3.HealthStatus_HEALTHY
	default:
		return corev3.HealthStatus_UNKNOWN
	}
}

func (d *drawing) drawThresholds() {
	d.world.thresholds = nil
	for range d.skewed(4) {
		t := threshold{high: d.chance(4)}
		if !d.chance(5) {
			limit := uint32(d.skewed(100))
			t.max = &limit
		}
		d.world.thresholds = append(d.world.thresholds, t)
	}
}

func (d *drawing) drawDrops() {
	d.world.drops = nil
	for i := range d.skewed(4) {
		dr := drop{category: fmt.Sprintf("category%d", i)}
		switch d.IntN(3) {
		case 0:
			dr.numerator, dr.denominator = d.Uint32N(60), typev3.FractionalPercent_HUNDRED
		case 1:
			dr.numerator, dr.denominator = d.Uint32N(6000), typev3.FractionalPercent_TEN_THOUSAND
		default:
			dr.numerator, dr.denominator = d.Uint32N(600_000), typev3.FractionalPercent_MILLION
		}
		if d.chance(20) { // 100 %, and more
			dr.numerator = 1_000_000 + d.Uint32N(3)
		}
		d.world.drops = append(d.world.drops, dr)
	}
}

func (d *drawing) locality() *locality {
	if len(d.world.localities) == 0 {
		return nil
	}
	return one(d, d.world.localities)
}

// step changes the world or the network, and returns a description.
func (d *drawing) step() string {
	d.world.flaw = nil
	d.world = one(d, d.leaves)
	steps := []func() string{
		d.stopSome, d.stopSome, d.startSome, d.startSome, d.changeSome, d.failPriority, d.recoverPriority,
		d.changeWeights, d.moveLocality, d.moveLocality, d.swapPriorities, d.changeHealth, d.changeHealth,
		d.changeLocalities, d.changeEndpoints, d.changeLimits, d.reorder, d.breakRule, d.changePolicy, d.empty, d.resend,
	}
	for {
		if what := one(d, steps)(); what != "" {
			d.world.compact()
			return d.world.cluster + ": " + what
		}
	}
}

func (d *drawing) stopSome() string   { return d.changeUpstreams(true, false) }
func (d *drawing) startSome() string  { return d.changeUpstreams(false, true) }
func (d *drawing) changeSome() string { return d.changeUpstreams(true, true) }

func (d *drawing) changeUpstreams(stop, start bool) string {
	var changing []*upstream
	for _, u := range d.net.all {
		if u.want && stop || !u.want && start {
			changing = append(changing, u)
		}
	}
	if len(changing) == 0 {
		return ""
	}
	var changes []string
	for _, u := range some(d, changing) {
		if u.want = !u.want; u.want {
			changes = append(changes, u.name+" starts")
		} else {
			changes = append(changes, u.name+" stops")
		}
	}
	return strings.Join(changes, ", ")
}

func (d *drawing) failPriority() string    { return d.changePriority("fails", false) }
func (d *drawing) recoverPriority() string { return d.changePriority("recovers", true) }

func (d *drawing) changePriority(what string, want bool) string {
	l := d.locality()
	if l == nil {
		return ""
	}
	for _, other := range d.world.localities {
		if other.priority == l.priority {
			for _, u := range other.upstreams() {
				u.want = want
			}
		}
	}
	return fmt.Sprintf("priority %d %s", l.priority, what)
}

// startMost draws for each new upstream whether it listens.
func (d *drawing) startMost(endpoints []*endpoint) {
	for _, e := range endpoints {
		for _, u := range e.upstreams {
			u.want = !d.chance(4)
		}
	}
}

func (d *drawing) changeWeights() string {
	if len(d.world.localities) == 0 {
		return ""
	}
	for _, l := range some(d, d.world.localities) {
		l.weight = d.weight()
	}
	return "weights change"
}

func (d *drawing) moveLocality() string {
	l := d.locality()
	if l == nil {
		return ""
	}
	from := l.priority
	l.priority = uint32(d.IntN(d.max.priorities))
	return fmt.Sprintf("z%d moves from priority %d to %d", l.zone, from, l.priority)
}

func (d *drawing) swapPriorities() string {
	if len(d.world.localities) == 0 {
		return ""
	}
	a, b := d.locality().priority, d.locality().priority
	if a == b {
		return ""
	}
	for _, l := range d.world.localities {
		switch l.priority {
		case a:
			l.priority = b
		case b:
			l.priority = a
		}
	}
	return fmt.Sprintf("priorities %d and %d swap", a, b)
}

func (d *drawing) changeHealth() string {
	all := d.world.endpoints()
	if len(all) == 0 {
		return ""
	}
	for _, e := range some(d, all) {
		if e.usable() {
			e.health = one(d, healths)
		} else {
			e.health = corev3.HealthStatus_HEALTHY
		}
	}
	return "health changes"
}

func (d *drawing) changeLocalities() string {
	if d.chance(2) && len(d.world.localities) > 0 {
		i := d.IntN(len(d.world.localities))
		gone := d.world.localities[i]
		d.world.localities = slices.Delete(d.world.localities, i, i+1)
		return fmt.Sprintf("z%d of priority %d is removed", gone.zone, gone.priority)
	}
	if len(d.world.localities) == d.max.localities {
		return ""
	}
	l := d.addLocality(uint32(d.IntN(d.max.priorities)))
	d.startMost(l.endpoints)
	return fmt.Sprintf("z%d is added at priority %d", l.zone, l.priority)
}

func (d *drawing) changeEndpoints() string {
	l := d.locality()
	if l == nil {
		return ""
	}
	if d.chance(2) && len(l.endpoints) > 0 {
		i := d.IntN(len(l.endpoints))
		gone := l.endpoints[i]
		l.endpoints = slices.Delete(l.endpoints, i, i+1)
		if d.chance(2) { // it moves to another locality
			to := d.locality()
			to.endpoints = append(to.endpoints, gone)
		}
		return fmt.Sprintf("%s leaves z%d", gone.upstreams[0].name, l.zone)
	}
	n := len(l.endpoints)
	d.addEndpoint(l)
	d.startMost(l.endpoints[n:])
	return fmt.Sprintf("z%d gets an endpoint", l.zone)
}

func (d *drawing) changeLimits() string {
	if d.chance(2) {
		d.drawThresholds()
		return "thresholds change"
	}
	d.drawDrops()
	return "drops change"
}

// reorder changes the order of the localities, which has no meaning.
func (d *drawing) reorder() string {
	if len(d.world.localities) < 2 {
		return ""
	}
	ls := d.world.localities
	d.Shuffle(len(ls), func(i, j int) { ls[i], ls[j] = ls[j], ls[i] })
	return "localities change places"
}

func (d *drawing) changePolicy() string {
	p, asked := one(d, lbPolicies), &clusterv3.Cluster{}
	p.ask(d, asked)
	d.world.policy, d.world.asked = p, asked
	if d.aggregate != nil {
		d.aggregate.agree(p, asked, d.leaves)
	}
	return p.name
}

// agree gives an aggregate and all its leaves one policy: grpc-go uses the aggregate's, lbd
// each leaf's.
func (a *aggregate) agree(p *lbPolicy, asked *clusterv3.Cluster, leaves []*world) {
	a.policy, a.asked = p, asked
	for _, w := range leaves {
		w.policy, w.asked = p, asked
	}
}

func (d *drawing) empty() string {
	if d.chance(2) {
		return ""
	}
	d.world.localities = nil
	return "the assignment is empty"
}

// resend changes nothing.
func (d *drawing) resend() string {
	if d.chance(2) {
		return ""
	}
	return "the same is sent again"
}

// breakRule sends resources that break a rule.
func (d *drawing) breakRule() string {
	if d.aggregate != nil {
		return "" // the NACK would affect others of the same response
	}
	f := one(d, flaws)
	if !f.fits(d.world.assignmentResource()) {
		return ""
	}
	d.world.flaw = &f
	return "broken: " + f.name
}

// flaws are rules that can be broken, most of them in the first locality.
var flaws = []flaw{
	{"an endpoint weighs 0", true, ofEndpoint(`{"load_balancing_weight": 0}`)},
	{"an endpoint is there twice", true, func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
		l := a.GetEndpoints()[0]
		l.LbEndpoints = append(l.LbEndpoints, proto.CloneOf(l.GetLbEndpoints()[0]))
	}},
	{"endpoints weigh too much", true, ofEndpoint(`{"load_balancing_weight": 4294967295}`)},
	{"localities weigh too much", false, ofLocality(0, `{"load_balancing_weight": 4294967295}`)},
	{"a locality is there twice", false, func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
		again := proto.CloneOf(a.GetEndpoints()[0])
		again.LbEndpoints = nil
		a.Endpoints = append(a.Endpoints, again)
	}},
	{"a locality is absent", false, ofLocality(0, `{"locality": null, "load_balancing_weight": 1}`)},
	{"a priority is left out", false, ofLocality(0, `{"priority": 5}`)}, // maxPriorities
	{"a drop's denominator is unknown", false, func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
		set(a, `{"policy": {"drop_overloads": [{"category": "unknown", "drop_percentage": {"numerator": 1, "denominator": 17}}]}}`)
	}},
	{"the cluster is STATIC", false, ofCluster(`{"type": null}`)},
	{"lrs_server is not self", false, ofCluster(`{"lrs_server": {"ads": {}}}`)},
	{"the policy is unknown", false, ofCluster(`{"load_balancing_policy": {"policies": [{"typed_extension_config": {
		"name": "policy", "typed_config": {"@type": "type.googleapis.com/envoy.type.v3.Int32Range"}}}]}}`)},
}

func ofCluster(json string) func(*clusterv3.Cluster, *endpointv3.ClusterLoadAssignment) {
	return func(c *clusterv3.Cluster, _ *endpointv3.ClusterLoadAssignment) { set(c, json) }
}

func ofLocality(i int, json string) func(*clusterv3.Cluster, *endpointv3.ClusterLoadAssignment) {
	return func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) { set(a.GetEndpoints()[i], json) }
}

func ofEndpoint(json string) func(*clusterv3.Cluster, *endpointv3.ClusterLoadAssignment) {
	return func(_ *clusterv3.Cluster, a *endpointv3.ClusterLoadAssignment) {
		set(a.GetEndpoints()[0].GetLbEndpoints()[0], json)
	}
}
