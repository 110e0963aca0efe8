package resolver

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	clusterScheme = "cluster:"
	xdsScheme     = "xds:///"
)

type target struct {
	name     string
	demanded bool // by Demand or Host
	unhosted bool // by a push or a file that was removed

	// Of xds: targets. err is why there are no usable routes; if it is nil, routing has the
	// last ones, or is nil before the first.
	needs   []resource.Key
	routing *resource.Routing
	unknown bool // the Listener or the RouteConfiguration is not known now
	err     error

	// roots are those that the current routes name; pending of them are Pending. serving
	// are those of config.
	roots     []*root
	pending   int
	serving   []*root
	byCluster few.Map[string, *root] // those of roots and serving
	parts     few.Map[string, *part] // by cluster
	config    *resource.Config       // nil before the first
	held      []resource.Key         // what config needs besides the needs, while the target waits
}

// ofCluster reports whether the target serves one cluster by name.
func (t *target) ofCluster() bool { return strings.HasPrefix(t.name, clusterScheme) }

// path returns "orders" for xds:///orders, and "//authority/orders" for
// xds://authority/orders.
func (t *target) path() string {
	path := strings.TrimPrefix(t.name, "xds:")
	if rest, ok := strings.CutPrefix(path, "///"); ok {
		return rest
	}
	return path
}

// service returns the path without an authority.
func (t *target) service() string {
	if rest, ok := strings.CutPrefix(t.path(), "//"); ok {
		_, service, _ := strings.Cut(rest, "/")
		return service
	}
	return t.path()
}

// authority returns the name to match virtual hosts: the service, percent-encoded once as an
// authority, as gRPC does (RFC 3986, 3.2).
func (t *target) authority() string {
	const plain = "-_.~!$&'()*+,;=:[]@"
	service := t.service()
	if decoded, err := url.PathUnescape(service); err == nil {
		service = decoded
	}
	var b strings.Builder
	for i := range len(service) {
		switch c := service[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(plain, c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// host updates a target after a change of a resource that hosts it.
func (r *Resolver) host(name string, b *batch) {
	t := r.targets[name]
	if t == nil {
		if t = (&target{name: name}); r.hosted(t) {
			r.add(t, b)
		}
		return
	}
	switch {
	case !t.ofCluster(): // its Listener may have changed
		insert(&b.routed, t)
	case !r.hosted(t):
		t.unhosted = true
	}
	b.publish(t)
}

// hosted reports whether a caller or a resource hosts the target.
func (r *Resolver) hosted(t *target) bool {
	if cluster, ok := Cluster(t.name); ok {
		return t.demanded || r.layers.covered(resource.Key{Type: resource.TypeAssignment, Name: cluster}) ||
			r.layers.byHand(resource.Key{Type: resource.TypeCluster, Name: cluster})
	}
	service, ok := strings.CutPrefix(t.name, xdsScheme)
	return t.demanded || ok && r.layers.covered(resource.Key{Type: resource.TypeListener, Name: service})
}

func (r *Resolver) add(t *target, b *batch) {
	r.targets[t.name] = t
	if cluster, ok := Cluster(t.name); ok {
		r.choose(t, []string{cluster})
	} else {
		insert(&b.routed, t)
	}
	b.publish(t)
}

func (r *Resolver) remove(t *target) {
	delete(r.targets, t.name)
	delete(r.failing.changed, t.name)
	r.hold(t, nil, nil)
	r.choose(t, nil)
	r.serve(t)
	r.watch(t, nil)
}

// listener returns the key of the target's Listener: that of a push or file with the name
// of the target, or the management server's.
func (r *Resolver) listener(t *target) resource.Key {
	key := resource.Key{Type: resource.TypeListener, Name: t.path()}
	if !strings.HasPrefix(t.name, xdsScheme) || !r.layers.covered(key) {
		key.Name = t.service()
		if r.options.ListenerName != nil {
			key.Name = r.options.ListenerName(t.path())
		}
	}
	return key
}

// route updates the routes of an xds: target: the virtual host that matches best, of its
// Listener or the RouteConfiguration that it names. The last routes stay while these are
// unknown (gRFC A74).
func (r *Resolver) route(t *target) {
	key := r.listener(t)
	keys := []resource.Key{key}
	t.unknown = false
	defer func() { r.watch(t, keys) }()
	l := r.layers.top(t.name, key)
	if l.Listener == nil {
		r.unrouted(t, key, l)
		return
	}
	is := &resource.Routing{Listener: l.Listener, ListenerFrom: l.from(), RoutesFrom: l.from()}
	routes := l.Listener.Routes
	if routes == nil {
		key = resource.Key{Type: resource.TypeRoutes, Name: l.Listener.RouteName}
		keys = append(keys, key)
		found := r.layers.top(t.name, key)
		if found.Routes == nil {
			r.unrouted(t, key, found)
			return
		}
		routes, is.RouteName, is.RoutesFrom = found.Routes, key.Name, found.from()
	}
	if is.VirtualHost = routes.VirtualHost(t.authority()); is.VirtualHost == nil {
		r.fail(t, fmt.Errorf("%s has no virtual host for %q", key, t.authority()))
		return
	}
	t.err, t.routing = nil, is
	names := make(map[string]bool)
	for _, route := range is.VirtualHost.Routes {
		for _, c := range route.Clusters {
			names[c.Name] = true
		}
	}
	r.choose(t, slices.Sorted(maps.Keys(names)))
}

// unrouted handles a Listener or RouteConfiguration that is not usable. The last routes stay
// while it is unknown.
func (r *Resolver) unrouted(t *target, key resource.Key, found *result) {
	switch {
	case found.Err != nil:
		r.fail(t, unusable(key, found))
	case !r.options.Server:
		r.fail(t, &NotFoundError{Key: key})
	default:
		t.unknown = true
	}
}

func (r *Resolver) fail(t *target, err error) {
	t.err, t.routing = err, nil
	r.choose(t, nil)
}

// watch sets the resources that the target itself needs.
func (r *Resolver) watch(t *target, keys []resource.Key) {
	for _, key := range keys {
		r.needed(t, key).routed = true
	}
	for _, key := range t.needs {
		if n := r.needs[key].Get(t); n != nil && !slices.Contains(keys, key) {
			n.routed = false
			r.removeUnused(t, key, n)
		}
	}
	t.needs = keys
}

// choose sets the clusters, sorted, that picks of the target can choose.
func (r *Resolver) choose(t *target, clusters []string) {
	if slices.EqualFunc(t.roots, clusters, func(x *root, cluster string) bool { return x.cluster == cluster }) {
		return
	}
	before := t.roots
	for _, x := range before {
		x.chosen = false
	}
	t.roots, t.pending = make([]*root, len(clusters)), 0
	for i, cluster := range clusters {
		x := r.acquire(t, cluster)
		x.chosen = true
		t.pending += count(x.config.Pending)
		t.roots[i] = x
	}
	for _, x := range before {
		r.release(x)
	}
}

func (r *Resolver) serve(t *target) {
	if slices.Equal(t.serving, t.roots) {
		return
	}
	for _, x := range t.roots {
		x.refs++
	}
	for _, x := range t.serving {
		r.release(x)
	}
	t.serving = t.roots
}

// publish updates the config of a target. ok is false if it does not change. While a new resource is
// unknown, only changes by hand do that (gRFC A74); see publishHeld.
func (r *Resolver) publish(t *target, b *batch) (c TargetConfig, ok bool) {
	adopted := false
	if !r.hosted(t) {
		if adopted = r.adopt(t); !adopted {
			r.remove(t)
			return TargetConfig{Target: t.name}, t.config != nil
		}
	}
	t.unhosted = false
	is := &resource.Config{Target: t.name}
	switch {
	case t.err != nil:
		is.Err = t.err
	case t.waits():
		is = r.publishHeld(t, b)
	case !t.ofCluster() && (t.pending > 0 || t.routing == nil):
		is.Pending = true
	default:
		fill(is, t)
	}
	if !is.Pending && !t.waits() {
		r.serve(t)
	}
	ok = t.config == nil || !same(t.config, is)
	if ok {
		t.config = is
	}
	switch {
	case t.waits(): // publishHeld has set it
	case t.unknown && !is.Pending:
		r.hold(t, routesInUse(t), r.routingWaits(t))
	default:
		r.hold(t, nil, nil)
	}
	return TargetConfig{Target: t.name, Config: t.config, Adopted: adopted}, ok || adopted
}

func fill(c *resource.Config, t *target) {
	c.Routing = t.routing
	c.Roots = make([]string, len(t.roots))
	for i, x := range t.roots {
		c.Roots[i] = x.cluster
		c.Clusters.Set(x.cluster, x.config)
		for i, leaf := range x.leaves {
			c.Clusters.Set(x.config.Leaves[i], leaf)
		}
	}
}

func same(a, b *resource.Config) bool {
	return text(a.Err) == text(b.Err) && a.Pending == b.Pending && sameRouting(a.Routing, b.Routing) &&
		slices.Equal(a.Roots, b.Roots) && few.Equal(&a.Clusters, &b.Clusters)
}

func sameRouting(a, b *resource.Routing) bool { return a == b || a != nil && b != nil && *a == *b }

// A target that waits for a resource which is not known keeps its last config. gRFC A74 holds back the
// updates of a management server, all of them, until the resource is known. A change by hand is not held
// back: the clusters of the last config get the current overlays, and the current resources of pushes and
// files. Only a change that itself leads to an unknown resource waits with the target.

// Waiting returns the resources that were changed or removed by hand, and that targets do not use as they are
// now, by target. It must not be changed.
func (r *Resolver) Waiting() map[string][]resource.Key { return r.waiting }

// Waits reports whether a resource is one of Waiting.
func (r *Resolver) Waits(key resource.Key) bool {
	for _, keys := range r.waiting {
		if slices.Contains(keys, key) {
			return true
		}
	}
	return false
}

// waits reports whether the target keeps its last config.
func (t *target) waits() bool {
	return t.config != nil && t.err == nil && (t.pending > 0 || t.routing == nil && !t.ofCluster())
}

// publishHeld returns the config of a target that waits: the last one, with changes by hand.
func (r *Resolver) publishHeld(t *target, b *batch) *resource.Config {
	last, byHand := t.config, b.byHand || r.waiting[t.name] != nil
	if last.Pending || t.ofCluster() && last.Clusters.Get(last.Roots[0]).Pending || // picks queue
		!byHand && t.held != nil {
		return last
	}
	is := *last
	is.Clusters = few.Map[string, *resource.ClusterConfig]{}
	needs, waits := routesInUse(t), r.routingWaits(t)
	for _, x := range t.serving {
		was := last.Clusters.Get(x.cluster)
		w := walk{resolver: r, target: t, last: last}
		cc, leaves := w.root(x.cluster)
		if cc.Pending { // an aggregate of a cluster that is not known
			unknown := slices.DeleteFunc(slices.Clone(w.needs), func(key resource.Key) bool { return r.top(t, key).known() })
			w.waits, w.names, w.leaves, w.err = append(w.aggregates, unknown...), nil, nil, nil
			cc, leaves = w.former(x.cluster, was)
		}
		if equal(was, cc) {
			cc = was
		}
		is.Clusters.Set(x.cluster, cc)
		for i, leaf := range leaves {
			is.Clusters.Set(cc.Leaves[i], leaf)
		}
		needs, waits = append(needs, w.needs...), append(waits, w.waits...)
	}
	if r.hold(t, needs, waits); !byHand {
		return last
	}
	return &is
}

// routesInUse returns the RouteConfiguration that the config of a target uses, if there is one.
func routesInUse(t *target) []resource.Key {
	if in := t.config.Routing; in != nil && in.RouteName != "" {
		return []resource.Key{{Type: resource.TypeRoutes, Name: in.RouteName}}
	}
	return nil
}

// routingWaits returns the Listener and the RouteConfigurations by hand that a target does not use as they are.
func (r *Resolver) routingWaits(t *target) (waits []resource.Key) {
	in := t.config.Routing
	if in == nil {
		none := resource.Provenance{Source: resource.SourceDefault}
		in = &resource.Routing{ListenerFrom: none, RoutesFrom: none}
	}
	for _, key := range slices.Concat(t.needs, routesInUse(t)) {
		now, from := r.layers.top(t.name, key), in.ListenerFrom
		same := now.Listener == in.Listener
		if key.Type == resource.TypeRoutes {
			from, same = in.RoutesFrom, now.Routes != nil && now.Routes.VirtualHost(t.authority()) == in.VirtualHost
		}
		if !same && (from.Source.ByHand() || now.known() && now.source.ByHand()) {
			waits = append(waits, key)
		}
	}
	return waits
}

// hold sets what a target needs for the config that it keeps, and the changes that it does not use yet.
func (r *Resolver) hold(t *target, needs, waits []resource.Key) {
	for _, key := range t.held {
		if delete(r.held[key], t); len(r.held[key]) == 0 {
			delete(r.held, key)
		}
	}
	for _, key := range needs {
		of := r.held[key]
		insert(&of, t)
		r.held[key] = of
	}
	t.held = needs
	if delete(r.waiting, t.name); waits != nil {
		r.waiting[t.name] = waits
	}
}

// adopt reports whether a cluster: target stays that only a push or a file has hosted: a management server may have
// the cluster. It is hosted as by Host.
func (r *Resolver) adopt(t *target) bool {
	if !t.unhosted || !r.options.Server || t.config == nil {
		return false
	}
	cc := t.config.Clusters.Get(t.roots[0].cluster)
	t.demanded = cc.Assignment != nil || cc.Leaves != nil
	return t.demanded
}
