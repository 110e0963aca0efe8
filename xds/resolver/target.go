package resolver

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	clusterScheme = "cluster:"
	xdsScheme     = "xds:///"
)

// target is one hosted target.
type target struct {
	name     string
	demanded bool // by Demand or Host

	// Of xds: targets. err is why there are no routes that can be used; where
	// it is nil, virtualHost is what the target was routed by last. It is nil
	// until it was for the first time.
	needs       []resource.Key
	routing     routing
	virtualHost *resource.VirtualHost
	err         error

	// roots are those that the newest routes name. How many of them are
	// Pending is in pending. serving are those of config, which stay until
	// there is another.
	roots     []*root
	pending   int
	serving   []*root
	byCluster map[string]*root // those of roots and serving
	parts     map[string]*part // by cluster
	config    *resource.Config // nil until there was one
}

// routing is where a target's routes come from.
type routing struct {
	listener                 *resource.Listener
	routeName                string
	listenerFrom, routesFrom resource.Provenance
}

// ofCluster reports whether the target serves one cluster by name.
func (t *target) ofCluster() bool { return strings.HasPrefix(t.name, clusterScheme) }

// path is the part of an xds: target that names it: "orders" of xds:///orders,
// "//authority/orders" of xds://authority/orders.
func (t *target) path() string {
	path := strings.TrimPrefix(t.name, "xds:")
	if rest, ok := strings.CutPrefix(path, "///"); ok {
		return rest
	}
	return path
}

// service is the path without an authority.
func (t *target) service() string {
	if rest, ok := strings.CutPrefix(t.path(), "//"); ok {
		_, service, _ := strings.Cut(rest, "/")
		return service
	}
	return t.path()
}

// authority is what virtual hosts are found by: the service, of which what cannot
// stand in an authority is percent-encoded, as gRPC does (RFC 3986, 3.2). What is
// percent-encoded in the target already is so once.
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

// host follows a change of what hosts a target.
func (r *Resolver) host(name string, b *batch) {
	t := r.targets[name]
	if t == nil {
		if t = (&target{name: name}); r.hosted(t) {
			r.add(t, b)
		}
		return
	}
	if !t.ofCluster() { // its Listener may be another
		insert(&b.routed, t)
	}
	b.publish(t)
}

// hosted reports whether somebody wants the target.
func (r *Resolver) hosted(t *target) bool {
	if cluster, ok := Cluster(t.name); ok {
		return t.demanded || r.clusters.covered(cluster) || r.clusters.rejected(cluster) || r.assignments.covered(cluster)
	}
	service, ok := strings.CutPrefix(t.name, xdsScheme)
	return t.demanded || ok && r.listeners.covered(service)
}

// add begins a target.
func (r *Resolver) add(t *target, b *batch) {
	r.targets[t.name] = t
	if cluster, ok := Cluster(t.name); ok {
		r.choose(t, []string{cluster})
	} else {
		insert(&b.routed, t)
	}
	b.publish(t)
}

// remove forgets a target.
func (r *Resolver) remove(t *target) {
	delete(r.targets, t.name)
	delete(r.failing.changed, t.name)
	r.choose(t, nil)
	r.serve(t)
	r.watch(t, nil)
}

// listener is the key of the Listener that the target is found by: the one that
// push or file have under the target's own name; else the management server's.
func (r *Resolver) listener(t *target) resource.Key {
	name := t.path()
	if own, ok := strings.CutPrefix(t.name, xdsScheme); !ok || !r.listeners.covered(own) {
		name = t.service()
		if r.options.ListenerName != nil {
			name = r.options.ListenerName(t.path())
		}
	}
	return resource.Key{Type: resource.TypeListener, Name: name}
}

// route finds the routes of an xds: target anew: of its Listener, or of the
// RouteConfiguration that this names, the virtual host that fits best. While they
// are not known the last ones stay (gRFC A74).
func (r *Resolver) route(t *target) {
	key := r.listener(t)
	keys := []resource.Key{key}
	defer func() { r.watch(t, keys) }()
	l := r.listeners.top(t.name, key.Name)
	if l.value == nil {
		unrouted(r, t, key, l)
		return
	}
	where := routing{listener: l.value, listenerFrom: l.from, routesFrom: l.from}
	routes := l.value.Routes
	if routes == nil {
		key = resource.Key{Type: resource.TypeRoutes, Name: l.value.RouteName}
		keys = append(keys, key)
		found := r.routes.top(t.name, key.Name)
		if found.value == nil {
			unrouted(r, t, key, found)
			return
		}
		routes, where.routeName, where.routesFrom = found.value, key.Name, found.from
	}
	h := routes.VirtualHost(t.authority())
	if h == nil {
		r.fail(t, fmt.Errorf("%s has no virtual host for %q", key, t.authority()))
		return
	}
	t.err, t.routing, t.virtualHost = nil, where, h
	var names []string
	seen := make(map[string]bool)
	for _, route := range h.Routes {
		for _, c := range route.Clusters {
			if !seen[c.Name] {
				seen[c.Name] = true
				names = append(names, c.Name)
			}
		}
	}
	r.choose(t, names)
}

// unrouted follows that the target has no Listener, or no RouteConfiguration that
// can be used. Where nobody knows it yet the last routes stay.
func unrouted[V any](r *Resolver, t *target, key resource.Key, found result[V]) {
	switch {
	case found.err != nil:
		r.fail(t, unusable(key, found))
	case !r.options.Server:
		r.fail(t, &NotFoundError{Key: key})
	}
}

// fail leaves the target without routes.
func (r *Resolver) fail(t *target, err error) {
	t.err, t.routing, t.virtualHost = err, routing{}, nil
	r.choose(t, nil)
}

// watch makes keys what the target itself needs.
func (r *Resolver) watch(t *target, keys []resource.Key) {
	for _, key := range keys {
		r.needed(t, key).routed = true
	}
	for _, key := range t.needs {
		if n := r.needs[key][t]; n != nil && !slices.Contains(keys, key) {
			n.routed = false
			r.unneeded(t, key, n)
		}
	}
	t.needs = keys
}

// choose makes the clusters those that picks of the target are to choose from.
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
		x := r.hold(t, cluster)
		x.chosen = true
		t.pending += count(x.config.Pending)
		t.roots[i] = x
	}
	for _, x := range before {
		r.release(x)
	}
}

// serve makes the roots those of the config.
func (r *Resolver) serve(t *target) {
	if slices.Equal(t.serving, t.roots) {
		return
	}
	for _, x := range t.roots {
		x.held++
	}
	for _, x := range t.serving {
		r.release(x)
	}
	t.serving = t.roots
}

// publish makes the target's config anew. ok is false where it stays as it is,
// also while something new that it needs is not known yet (gRFC A74).
func (r *Resolver) publish(t *target) (c Change, ok bool) {
	if !r.hosted(t) {
		r.remove(t)
		return Change{Target: t.name}, t.config != nil
	}
	is := &resource.Config{Target: t.name}
	switch {
	case t.err != nil:
		is.Err = t.err
	case t.config != nil && (t.pending > 0 || t.virtualHost == nil && !t.ofCluster()):
		return Change{}, false
	case !t.ofCluster() && (t.pending > 0 || t.virtualHost == nil):
		is.Pending = true
	default:
		fill(is, t)
	}
	if !is.Pending {
		r.serve(t)
	}
	if t.config != nil && same(t.config, is) {
		return Change{}, false
	}
	t.config = is
	return Change{Target: t.name, Config: is}, true
}

// fill puts the target's routes and clusters into a config.
func fill(c *resource.Config, t *target) {
	c.VirtualHost, c.Listener, c.RouteName = t.virtualHost, t.routing.listener, t.routing.routeName
	c.ListenerFrom, c.RoutesFrom = t.routing.listenerFrom, t.routing.routesFrom
	c.Roots = make([]string, len(t.roots))
	c.Clusters = make(map[string]*resource.ClusterConfig, len(t.roots))
	for i, x := range t.roots {
		c.Roots[i] = x.cluster
		c.Clusters[x.cluster] = x.config
		for i, leaf := range x.leaves {
			c.Clusters[x.config.Leaves[i]] = leaf
		}
	}
}

// same reports whether two configs of a target say the same.
func same(a, b *resource.Config) bool {
	if text(a.Err) != text(b.Err) || a.Pending != b.Pending ||
		a.VirtualHost != b.VirtualHost || a.Listener != b.Listener || a.RouteName != b.RouteName ||
		a.ListenerFrom != b.ListenerFrom || a.RoutesFrom != b.RoutesFrom ||
		!slices.Equal(a.Roots, b.Roots) || len(a.Clusters) != len(b.Clusters) {
		return false
	}
	for name, cc := range a.Clusters {
		if b.Clusters[name] != cc {
			return false
		}
	}
	return true
}
