package resolver

import (
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
}

// root returns a root's config, with the leaves of an AGGREGATE.
func (w *walk) root(cluster string) (*resource.ClusterConfig, []*resource.ClusterConfig) {
	own := w.cluster(cluster)
	if own.Err != nil || own.Cluster.Type != resource.ClusterAggregate {
		return own, nil
	}
	w.seen = map[string]bool{cluster: true}
	w.aggregate(own.Cluster, 0)
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
	p := w.target.parts.Get(name)
	if p == nil {
		p = &part{}
		w.target.parts.Set(name, p)
	}
	is, need := r.cluster(w.target, name, p)
	r.overlay(name, p, &is)
	if need.Name != "" {
		w.needs = append(w.needs, need)
	}
	if p.config == nil || !equal(p.config, &is) {
		p.config = &is
	}
	return p.config
}

// cluster returns the config of a single cluster, and the resource that it needs in addition
// to the Cluster; none if it is unknown or an aggregate.
func (r *Resolver) cluster(t *target, name string, p *part) (cc resource.ClusterConfig, need resource.Key) {
	key := resource.Key{Type: resource.TypeCluster, Name: name}
	assigned := r.layers.covered(resource.Key{Type: resource.TypeAssignment, Name: name})
	c := r.layers.top(t.name, key)
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
	switch cc.Cluster.Type {
	case resource.ClusterAggregate:
		return cc, need
	case resource.ClusterLogicalDNS:
		need = resource.Key{Type: typeHost, Name: cc.Cluster.DNSHostname}
		at := r.hosts[need.Name]
		if at == nil && r.base != nil {
			at = r.base.hosts[need.Name]
		}
		if at != nil {
			assign(&cc, at)
		}
		cc.Pending = cc.Assignment == nil && cc.AssignmentErr == nil
	default:
		need = resource.Key{Type: resource.TypeAssignment, Name: cc.Cluster.AssignmentName()}
		assign(&cc, r.layers.top(t.name, need))
		if cc.Assignment == nil && cc.AssignmentErr == nil {
			if cc.Pending = r.options.Server; !cc.Pending {
				cc.AssignmentErr = fmt.Errorf("no endpoints: %s is not known", need)
			}
		}
	}
	return cc, need
}

func assign(cc *resource.ClusterConfig, a *result) {
	if a.Assignment != nil || a.Err != nil {
		cc.Assignment, cc.AssignmentErr, cc.AssignmentFrom = a.Assignment, a.Err, a.from()
	}
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
