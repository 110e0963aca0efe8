package resolver

import (
	"maps"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Preview is what a Proposal would make of one target that it touches.
type Preview struct {
	Target string
	// Before and After are nil if the target is not hosted.
	Before, After *resource.Config
	// Waits is true if After, or a part of it, waits for a resource that is not known yet: until then,
	// the target keeps what it has.
	Waits bool
	// Clusters are the clusters that picks can choose before or after, and whose config differs, by name.
	Clusters []string
	// Routes is true if the routes differ.
	Routes bool
	// Touched are the clusters that picks can choose, and whose resources the proposal changes, in no order.
	Touched []Touch
}

// Touch is a cluster whose resources a proposal changes.
type Touch struct {
	Cluster string
	// Next is what the cluster is as soon as its target waits for nothing: that of After, or a later one. It is
	// nil if picks can no longer choose the cluster.
	Next *resource.ClusterConfig
	// Leaves are the leaves of an AGGREGATE.
	Leaves []*resource.ClusterConfig
	// Needs are the resources that the cluster depends on before or after.
	Needs []resource.Key
}

// Differs reports whether the target would get another config, or would wait for one.
func (p *Preview) Differs() bool {
	return len(p.Clusters) > 0 || p.Routes || p.Waits || (p.Before == nil) != (p.After == nil)
}

// Preview returns what a proposal would change, by target, without changing anything. What earlier proposals
// change is there before.
func (r *Resolver) Preview(p *Proposal, earlier ...*Proposal) []Preview {
	names := make(map[string]struct{})
	r.touched(p, names)
	for _, e := range earlier {
		r.touched(e, names)
	}
	f := r.fork(names)
	for _, e := range earlier {
		f.Accept(e)
	}
	before := make(map[string]*resource.Config, len(f.targets))
	for name, t := range f.targets {
		names[name] = struct{}{}
		before[name] = t.config
	}
	f.touches = make(map[touch][]resource.Key)
	f.Accept(p)
	r.reused = f.reused // to be of use when the proposal is applied
	touched := make(map[string][]Touch)
	for x, needs := range f.touches {
		is := Touch{Cluster: x.cluster, Needs: needs}
		if t := f.targets[x.target]; t != nil {
			if x := t.byCluster.Get(x.cluster); x != nil && x.chosen {
				is.Next, is.Leaves = x.config, x.leaves
			}
		}
		touched[x.target] = append(touched[x.target], is)
	}
	var all []Preview
	for i, name := range slices.Sorted(maps.Keys(names)) {
		yield(i)
		is := Preview{Target: name, Before: before[name], Touched: touched[name]}
		if t := f.targets[name]; t != nil {
			is.After = t.config
			is.Waits = t.pending > 0 || !t.ofCluster() && t.routing == nil && t.err == nil
		}
		if is.compare(); is.Touched != nil || is.Differs() {
			all = append(all, is)
		}
	}
	return all
}

// touched adds the targets that a proposal may change.
func (r *Resolver) touched(p *Proposal, names map[string]struct{}) {
	need := func(key resource.Key) {
		for t := range r.needs[key].All() {
			names[t.name] = struct{}{}
		}
		for t := range r.held[key] {
			names[t.name] = struct{}{}
		}
	}
	for i := range p.Updates {
		key := p.Updates[i].Key
		need(key)
		switch key.Type {
		case resource.TypeListener:
			names[xdsScheme+key.Name] = struct{}{}
		case resource.TypeCluster, resource.TypeAssignment: // see updateHosted
			need(resource.Key{Type: resource.TypeCluster, Name: key.Name})
			names[Target(key.Name)] = struct{}{}
		}
	}
	for cluster := range p.Overlays {
		need(resource.Key{Type: resource.TypeCluster, Name: cluster})
	}
	for name := range p.Hosted {
		names[name] = struct{}{}
	}
}

// fork returns a Resolver with some of the targets and all resources. Its changes do not change r, which
// must not change while the fork is in use.
func (r *Resolver) fork(targets map[string]struct{}) *Resolver {
	f := New(r.options)
	f.base, f.layers.base, f.reused = r, &r.layers, r.reused
	var b batch
	for name := range targets {
		is := r.targets[name]
		if is == nil {
			continue
		}
		t := &target{name: name, demanded: is.demanded, routing: is.routing, err: is.err}
		for cluster, p := range is.parts.All() { // equal configs stay the same
			t.parts.Set(cluster, &part{config: p.config, defaultCluster: p.defaultCluster})
		}
		f.add(t, &b)
		roots := make([]string, len(is.roots))
		for i, x := range is.roots {
			roots[i] = x.cluster
		}
		f.choose(t, roots) // they stay if the routes are unknown now
		t.config = is.config
	}
	f.settle(&b)
	for name, t := range f.targets {
		is := r.targets[name]
		if t.config = is.config; is.waits() { // else it is an equal one
			for _, x := range is.serving {
				t.serving = append(t.serving, f.acquire(t, x.cluster))
			}
			f.hold(t, is.held, nil)
		}
	}
	return f
}

// compare sets what differs.
func (p *Preview) compare() {
	var before, after resource.Config
	if p.Before != nil {
		before = *p.Before
	}
	if p.After != nil {
		after = *p.After
	}
	p.Routes = text(before.Err) != text(after.Err) || !sameRouting(before.Routing, after.Routing)
	names := slices.Concat(before.Roots, after.Roots)
	slices.Sort(names)
	p.Clusters = slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		was, is := before.Clusters.Get(name), after.Clusters.Get(name)
		if was == nil || is == nil || !sameEffect(was, is) {
			return was == is
		}
		return !slices.ContainsFunc(is.Leaves, func(leaf string) bool {
			was, is := before.Clusters.Get(leaf), after.Clusters.Get(leaf)
			return was == nil || is == nil || !sameEffect(was, is)
		})
	})
}

// sameEffect reports whether two configs of a cluster are the same to a tree: their sources may differ.
func sameEffect(a, b *resource.ClusterConfig) bool {
	return a == b || a.Cluster == b.Cluster && a.Assignment == b.Assignment && a.Pending == b.Pending &&
		slices.Equal(a.Leaves, b.Leaves) && text(a.Err) == text(b.Err) && (a.Assignment != nil || text(a.AssignmentErr) == text(b.AssignmentErr))
}
