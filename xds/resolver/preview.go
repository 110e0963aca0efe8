package resolver

import (
	"maps"
	"slices"
	"strings"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Proposal is a change of what is pushed, for [Resolver.Preview].
type Proposal struct {
	Updates []resource.Update
	// Overlays has all overlays of each cluster whose overlays change, the oldest first.
	Overlays map[string][]*resource.Overlay
	// Hosted are the targets that the change hosts by name (true), or no longer (false).
	Hosted map[string]bool
}

// Preview is what a Proposal would make of one target.
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
}

// Preview returns what a proposal would change, by target, without changing anything. It considers the
// first limit targets only, and returns how many more the proposal touches.
func (r *Resolver) Preview(p *Proposal, limit int) (all []Preview, more int) {
	touched := r.touched(p)
	if more = max(0, len(touched)-limit); more > 0 {
		touched = touched[:limit]
	}
	fork := r.fork(touched)
	fork.Apply(resource.SourcePush, p.Updates)
	for name, hosted := range p.Hosted {
		fork.demand(name, hosted)
	}
	for cluster, list := range p.Overlays {
		fork.ApplyOverlays(cluster, list)
	}
	for i, name := range touched {
		yield(i)
		is := Preview{Target: name}
		if t := r.targets[name]; t != nil {
			is.Before = t.config
		}
		if t := fork.targets[name]; t != nil {
			is.After = t.config
			is.Waits = t.pending > 0 || !t.ofCluster() && t.routing == nil && t.err == nil
		}
		if is.compare(); len(is.Clusters) > 0 || is.Routes || is.Waits || (is.Before == nil) != (is.After == nil) {
			all = append(all, is)
		}
	}
	return all, more
}

// touched returns the targets that a proposal may change, by name.
func (r *Resolver) touched(p *Proposal) []string {
	names := make(map[string]struct{})
	need := func(key resource.Key) {
		for t := range r.needs[key].All() {
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
	return slices.SortedFunc(maps.Keys(names), strings.Compare)
}

// fork returns a Resolver with some of the targets and all resources. Its changes do not change r, which
// must not change while the fork is in use.
func (r *Resolver) fork(targets []string) *Resolver {
	f := New(r.options)
	f.layers.base, f.hosts = &r.layers, maps.Clone(r.hosts)
	for cluster, of := range r.overlays {
		f.overlays[cluster] = &overlays{list: of.list}
	}
	var b batch
	for _, name := range targets {
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
