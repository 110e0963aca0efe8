package resolver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// maxAggregateDepth is the maximum depth of nested aggregates (gRFC A37).
const maxAggregateDepth = 16

// root is a cluster that picks of a target can choose, with its parts. Each target has its
// own: targets may use different management servers (gRFC A71).
type root struct {
	target  *target
	cluster string
	refs    int  // lists of the target that have it: roots, serving
	chosen  bool // the current routes name it

	needs []resource.Key
	// config is that of the cluster; leaves are those of an AGGREGATE. Pointers change
	// only with the contents.
	config *resource.ClusterConfig
	leaves []*resource.ClusterConfig
}

type part struct {
	config         *resource.ClusterConfig
	defaultCluster *resource.Cluster // used without a Cluster
}

// acquire returns a target's root of a cluster with a new reference; see release.
func (r *Resolver) acquire(t *target, cluster string) *root {
	x := t.byCluster.Get(cluster)
	if x == nil {
		x = &root{target: t, cluster: cluster}
		t.byCluster.Set(cluster, x)
		r.resolve(x)
		r.traced(x)
	}
	x.refs++
	return x
}

func (r *Resolver) release(x *root) {
	if x.refs--; x.refs > 0 {
		return
	}
	x.target.byCluster.Delete(x.cluster)
	r.need(x, nil)
}

func (r *Resolver) need(x *root, keys []resource.Key) {
	if slices.Equal(x.needs, keys) {
		return
	}
	for _, key := range keys {
		r.needed(x.target, key).roots.Set(x, struct{}{})
	}
	still := make(map[resource.Key]bool)
	if len(x.needs) > 0 { // else there is nothing to release
		for _, key := range keys {
			still[key] = true
		}
	}
	for _, key := range x.needs {
		if n := r.needs[key].Get(x.target); n != nil && !still[key] {
			n.roots.Delete(x)
			r.removeUnused(x.target, key, n)
		}
	}
	x.needs = keys
}

// resolve updates the root. It reports whether it changed.
func (r *Resolver) resolve(x *root) (changed bool) {
	w := walk{resolver: r, target: x.target, needs: make([]resource.Key, 0, 2)} // of nearly all clusters
	is, leaves := w.root(x.cluster)
	r.need(x, w.needs)
	was := x.config
	if was != nil && slices.Equal(x.leaves, leaves) && equal(was, is) {
		return false
	}
	if x.config, x.leaves = is, leaves; was != nil && x.chosen {
		x.target.pending += count(is.Pending) - count(was.Pending)
	}
	return true
}

// touch identifies a cluster of a target.
type touch struct{ target, cluster string }

// traced adds the needs of a root to those of a fork that previews a proposal.
func (r *Resolver) traced(x *root) {
	if r.touches == nil {
		return
	}
	at := touch{x.target.name, x.cluster}
	all := r.touches[at]
	if slices.Equal(all, x.needs) { // as before the proposal
		return
	}
	known := make(map[resource.Key]bool, len(all))
	for _, key := range all {
		known[key] = true
	}
	for _, key := range x.needs {
		if !known[key] {
			known[key] = true
			all = append(all, key)
		}
	}
	r.touches[at] = all
}

func count(pending bool) int {
	if pending {
		return 1
	}
	return 0
}

type walk struct {
	resolver *Resolver
	target   *target
	needs    []resource.Key
	seen     map[string]bool
	names    []string // of leaves
	leaves   []*resource.ClusterConfig
	err      error // why the aggregate as a whole cannot be used

	// last is the config in use of a target that waits, for [Resolver.publishHeld]; else nil.
	last *resource.Config
	// waits are changes by hand that are not used yet; aggregates are the Clusters of aggregates.
	waits, aggregates []resource.Key
}

// root returns a root's config, with the leaves of an AGGREGATE.
func (w *walk) root(cluster string) (*resource.ClusterConfig, []*resource.ClusterConfig) {
	own := w.cluster(cluster)
	if own.Err != nil || own.Cluster.Type != resource.ClusterAggregate {
		return own, nil
	}
	w.seen = map[string]bool{cluster: true}
	w.aggregate(own.Cluster, 0)
	return w.compose(own)
}

// compose returns the config of an aggregate with its leaves.
func (w *walk) compose(own *resource.ClusterConfig) (*resource.ClusterConfig, []*resource.ClusterConfig) {
	config := *own
	if config.Err = w.err; w.err == nil && len(w.leaves) == 0 {
		config.Err = errors.New("aggregate cluster graph has no leaf clusters")
	}
	if config.Err != nil {
		config.Pending = false
		return &config, nil
	}
	config.Leaves = w.names
	for _, leaf := range w.leaves {
		config.Pending = config.Pending || leaf.Pending
		if leaf.AssignmentFrom.Updated.After(config.AssignmentFrom.Updated) {
			config.AssignmentFrom = leaf.AssignmentFrom
		}
	}
	return &config, w.leaves
}

// aggregate adds the leaves of an aggregate, depth first, each once (gRFC A37). A cluster that
// does not exist or has an error becomes a leaf with the error, so that the others can be
// used (gRFC A74). A graph that is too deep fails the whole aggregate.
func (w *walk) aggregate(c *resource.Cluster, depth int) {
	w.aggregates = append(w.aggregates, resource.Key{Type: resource.TypeCluster, Name: c.Name})
	for _, name := range c.Leaves {
		if depth+1 >= maxAggregateDepth {
			w.err = fmt.Errorf("aggregate cluster graph exceeds max depth (%d)", maxAggregateDepth)
			return
		}
		if w.seen[name] {
			continue
		}
		w.seen[name] = true
		leaf := w.cluster(name)
		if leaf.Err == nil && leaf.Cluster.Type == resource.ClusterAggregate {
			w.aggregate(leaf.Cluster, depth+1)
			continue
		}
		w.names, w.leaves = append(w.names, name), append(w.leaves, leaf)
	}
}

// cluster returns a single cluster, and adds its needs.
func (w *walk) cluster(name string) *resource.ClusterConfig {
	r := w.resolver
	w.needs = append(w.needs, resource.Key{Type: resource.TypeCluster, Name: name})
	if w.last != nil {
		return w.heldCluster(name, false)
	}
	p := w.target.parts.Get(name)
	if p == nil {
		p = &part{}
		w.target.parts.Set(name, p)
	}
	is, need := r.cluster(func(key resource.Key) *result { return r.top(w.target, key) }, name, p)
	r.overlay(name, p, &is)
	if need.Name != "" {
		w.needs = append(w.needs, need)
	}
	if p.config == nil || !equal(p.config, &is) {
		p.config = &is
	}
	return p.config
}

// top returns the result in use of a resource or a DNS name for a target.
func (r *Resolver) top(t *target, key resource.Key) *result {
	if key.Type != typeHost {
		return r.layers.top(t.name, key)
	}
	at := r.hosts[key.Name]
	if at == nil && r.base != nil {
		at = r.base.hosts[key.Name]
	}
	return cmp.Or(at, &unknown)
}

// cluster returns the config of a single cluster, and the resource that it needs in addition
// to the Cluster; none if it is unknown or an aggregate. top returns the resources to use.
func (r *Resolver) cluster(top func(resource.Key) *result, name string, p *part) (cc resource.ClusterConfig, need resource.Key) {
	key := resource.Key{Type: resource.TypeCluster, Name: name}
	assigned := r.layers.covered(resource.Key{Type: resource.TypeAssignment, Name: name})
	c := top(key)
	switch {
	case c.Cluster != nil:
		cc.Cluster, cc.ClusterFrom = c.Cluster, c.from()
	case c.Err != nil && (c.source.ByHand() || !assigned):
		if cc.Err, cc.ClusterFrom = c.Err, c.from(); c.notFound() {
			cc.Err = &NotFoundError{Key: key, Err: c.Err}
		}
		return cc, need
	case assigned || r.options.Server:
		// An assignment of a push or file hosts a cluster.
		if p.defaultCluster == nil {
			p.defaultCluster = resource.DefaultCluster(name)
		}
		cc.Cluster, cc.ClusterFrom.Source = p.defaultCluster, resource.SourceDefault
		if !assigned {
			cc.AssignmentFrom, cc.Pending = cc.ClusterFrom, true
			return cc, need
		}
	default:
		cc.Err, cc.ClusterFrom.Source = &NotFoundError{Key: key}, resource.SourceDefault
		return cc, need
	}
	cc.AssignmentFrom = cc.ClusterFrom
	if cc.Cluster.Type == resource.ClusterAggregate {
		return cc, need
	}
	need = needOf(cc.Cluster)
	if a := top(need); a.known() {
		cc.Assignment, cc.AssignmentErr, cc.AssignmentFrom = a.Assignment, a.Err, a.from()
	}
	if cc.Assignment == nil && cc.AssignmentErr == nil {
		if cc.Pending = r.options.Server || need.Type == typeHost; !cc.Pending {
			cc.AssignmentErr = fmt.Errorf("no endpoints: %s is not known", need)
		}
	}
	return cc, need
}

// former returns a root as it was, with the changes by hand of its leaves.
func (w *walk) former(cluster string, was *resource.ClusterConfig) (*resource.ClusterConfig, []*resource.ClusterConfig) {
	if len(was.Leaves) == 0 {
		return w.heldCluster(cluster, true), nil
	}
	for _, name := range was.Leaves {
		w.names, w.leaves = append(w.names, name), append(w.leaves, w.cluster(name))
	}
	own := *was
	own.AssignmentFrom = own.ClusterFrom
	return w.compose(&own)
}

// heldCluster returns a single cluster of a target that waits, and adds its needs. former is true to use the
// Cluster that is in use, even if people have changed it.
func (w *walk) heldCluster(name string, former bool) *resource.ClusterConfig {
	r, was := w.resolver, w.last.Clusters.Get(name)
	key := resource.Key{Type: resource.TypeCluster, Name: name}
	// The defaults are in use, and will not be: they go with endpoints by hand only, which may need no TLS.
	defaults := was != nil && was.ClusterFrom.Source == resource.SourceDefault && !r.layers.covered(resource.Key{Type: resource.TypeAssignment, Name: name})
	is, need := r.cluster(func(of resource.Key) *result {
		now, before := r.top(w.target, of), inUse(was, of)
		switch {
		case before == nil:
			return now
		case of == key && former:
			return before
		case of == key && defaults && now.known():
			defaults = false
			return now
		case of != key && defaults && !now.source.ByHand():
			w.waits = append(w.waits, of)
			return before
		case now.known() && (now.source.ByHand() || before.source.ByHand()):
			return now
		case before.source.ByHand() && before.good():
			w.waits = append(w.waits, of)
		}
		return before
	}, name, &part{})
	if need.Name != "" {
		w.needs = append(w.needs, need)
	}
	if is.Pending && was != nil && !former {
		w.waits = append(w.waits, key)
		return w.heldCluster(name, true)
	}
	r.overlay(name, &part{config: was}, &is)
	if was != nil && equal(was, &is) {
		return was
	}
	return &is
}

// inUse returns the result of a resource that a config uses; nil if it does not use the resource.
func inUse(cc *resource.ClusterConfig, key resource.Key) *result {
	if cc == nil {
		return nil
	}
	cluster, assignment := cc.Source()
	is, from := &result{Value: resource.Value{Cluster: cluster}, Err: cc.Err}, cc.ClusterFrom
	if key.Type != resource.TypeCluster {
		if cluster == nil || key != needOf(cluster) {
			return nil
		}
		is, from = &result{Value: resource.Value{Assignment: assignment}, Err: cc.AssignmentErr}, cc.AssignmentFrom
	}
	is.source, is.Updated, is.Version = from.Source, from.Updated, from.Version
	return is
}

// needOf returns the resource that a Cluster needs; of an AGGREGATE, none that it has.
func needOf(c *resource.Cluster) resource.Key {
	if c.Type == resource.ClusterLogicalDNS {
		return resource.Key{Type: typeHost, Name: c.DNSHostname}
	}
	return resource.Key{Type: resource.TypeAssignment, Name: c.AssignmentName()}
}

func equal(a, b *resource.ClusterConfig) bool {
	return a == b ||
		a.Cluster == b.Cluster && a.ClusterFrom == b.ClusterFrom && a.Pending == b.Pending &&
			a.Assignment == b.Assignment && a.AssignmentFrom == b.AssignmentFrom && a.Overlaid == b.Overlaid &&
			slices.Equal(a.Leaves, b.Leaves) &&
			text(a.Err) == text(b.Err) && text(a.AssignmentErr) == text(b.AssignmentErr)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
