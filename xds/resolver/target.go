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

	// Of xds: targets. err is why there are no usable routes; if it is nil, routing has the
	// last ones, or is nil before the first.
	needs   []resource.Key
	routing *resource.Routing
	err     error

	// roots are those that the current routes name; pending of them are Pending. serving
	// are those of config.
	roots     []*root
	pending   int
	serving   []*root
	byCluster few.Map[string, *root] // those of roots and serving
	parts     few.Map[string, *part] // by cluster
	config    *resource.Config       // nil before the first
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
	if !t.ofCluster() { // its Listener may have changed
		insert(&b.routed, t)
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

// publish updates the config of a target. ok is false if it does not change, also while a
// new resource is unknown (gRFC A74).
func (r *Resolver) publish(t *target) (c TargetConfig, ok bool) {
	if !r.hosted(t) {
		r.remove(t)
		return TargetConfig{Target: t.name}, t.config != nil
	}
	is := &resource.Config{Target: t.name}
	switch {
	case t.err != nil:
		is.Err = t.err
	case t.config != nil && (t.pending > 0 || t.routing == nil && !t.ofCluster()):
		return TargetConfig{}, false
	case !t.ofCluster() && (t.pending > 0 || t.routing == nil):
		is.Pending = true
	default:
		fill(is, t)
	}
	if !is.Pending {
		r.serve(t)
	}
	if t.config != nil && same(t.config, is) {
		return TargetConfig{}, false
	}
	t.config = is
	return TargetConfig{Target: t.name, Config: is}, true
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
