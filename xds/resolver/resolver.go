package resolver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Target returns the target that serves one cluster by name.
func Target(cluster string) string { return "cluster:" + cluster }

// Cluster returns the cluster of a "cluster:NAME" target; ok is false for any
// other target.
func Cluster(target string) (name string, ok bool) { return strings.CutPrefix(target, "cluster:") }

// Update is what a source says of one resource.
type Update struct {
	// Item is the resource: Raw as the decoder wrote it, and its value where
	// it is known already. Where Raw and Err are nil the source has the
	// resource no more.
	resource.Item
	// Updated is since when the resource is as it is.
	Updated time.Time
	// Version is the management server's version_info.
	Version string
	// Err is why the source has no resource that can be used, or why what it
	// had stays in use.
	Err error
}

// Change is a target's new config.
type Change struct {
	// Target is "cluster:NAME" or "xds:///NAME".
	Target string
	// Config is nil where the target is no more.
	Config *resource.Config
}

// Resolver holds the resources of every source as values, and every target's
// config. Its methods must be called one after another.
type Resolver struct {
	options     resource.Options
	clusters    layers[*resource.Cluster]
	assignments layers[*resource.Assignment]
	hosts       map[string]*result[*resource.Assignment] // by DNS name
	uses        uses
	// defaults stand for the configurations of clusters without.
	defaults map[string]*resource.Cluster
	current  map[string]*resource.Config // by cluster
}

// layers holds the resources of one type by name, then by source.
type layers[V any] map[string]*[len(resource.Sources)]*result[V]

// result is a resource as a value, or why it is none: what an older lbd stored
// may break a rule of this one.
type result[V any] struct {
	value V
	err   error
	from  resource.Provenance
}

// top is the resource of the first source that has it, or nil.
func (l layers[V]) top(name string) *result[V] {
	if at := l[name]; at != nil {
		for _, r := range at {
			if r != nil {
				return r
			}
		}
	}
	return nil
}

// put replaces what a source has; nil is nothing.
func (l layers[V]) put(name string, s resource.Source, r *result[V]) {
	at := l[name]
	if at == nil {
		at = new([len(resource.Sources)]*result[V])
		l[name] = at
	}
	at[s] = r
	if *at == [len(resource.Sources)]*result[V]{} {
		delete(l, name)
	}
}

// Options are what a Resolver needs from around it.
type Options struct {
	// Custom reports which policies are available beside the decoder's own;
	// nil is none.
	Custom func(name string) bool
}

// New returns a Resolver without resources.
func New(o Options) *Resolver {
	return &Resolver{
		options:     resource.Options{Origin: resource.ByHand, Format: resource.FormatProtobuf, Custom: o.Custom},
		clusters:    make(layers[*resource.Cluster]),
		assignments: make(layers[*resource.Assignment]),
		hosts:       make(map[string]*result[*resource.Assignment]),
		uses:        make(uses),
		defaults:    make(map[string]*resource.Cluster),
		current:     make(map[string]*resource.Config),
	}
}

// Apply takes what a source says, and returns the targets that this changes, in
// the order of their names.
func (r *Resolver) Apply(s resource.Source, updates []Update) []Change {
	affected := make(map[string]bool)
	for _, u := range updates {
		r.uses.affected(need{cluster: u.Key.Name}, affected)
		switch u.Key.Type {
		case resource.TypeCluster:
			r.applyCluster(s, u)
		case resource.TypeAssignment:
			r.applyAssignment(s, u)
			r.uses.affected(need{assignment: u.Key.Name}, affected)
		}
	}
	return r.resolveAll(affected)
}

// ApplyHost takes what a DNS name resolves to, or why it does not. What it
// resolved to before stays where there is an error.
func (r *Resolver) ApplyHost(host string, addresses []string, err error) []Change {
	was := r.hosts[host]
	if was == nil {
		was = &result[*resource.Assignment]{}
	}
	is := &result[*resource.Assignment]{value: was.value, err: err, from: resource.Provenance{Source: resource.SourceDNS, Updated: was.from.Updated}}
	if err == nil {
		is.value = hostAssignment(host, addresses).Reuse(was.value)
		if is.value != was.value {
			is.from.Updated = time.Now()
		}
	}
	r.hosts[host] = is
	affected := make(map[string]bool)
	r.uses.affected(need{host: host}, affected)
	return r.resolveAll(affected)
}

// hostAssignment is what a LOGICAL_DNS cluster takes for its assignment: one
// endpoint with all addresses.
func hostAssignment(host string, addresses []string) *resource.Assignment {
	e := &resource.Endpoint{Addresses: addresses, Hostname: host, Weight: 1}
	return &resource.Assignment{
		Name:       host,
		Localities: []*resource.LocalityEndpoints{{Weight: 1, Endpoints: []*resource.Endpoint{e}}},
	}
}

// Hosts are the DNS names that clusters need, as "host:port". What other names
// resolved to is forgotten.
func (r *Resolver) Hosts() map[string]bool {
	hosts := make(map[string]bool)
	for n := range r.uses {
		if n.host != "" {
			hosts[n.host] = true
		}
	}
	for h := range r.hosts {
		if !hosts[h] {
			delete(r.hosts, h)
		}
	}
	return hosts
}

// resolveAll makes the configs of clusters anew, in the order of their names.
func (r *Resolver) resolveAll(names map[string]bool) []Change {
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if c, ok := r.resolve(name); ok {
			changes = append(changes, c)
		}
	}
	return changes
}

// optionsFor are those of decoding one stored resource.
func (r *Resolver) optionsFor(key resource.Key) resource.Options {
	o := r.options
	o.Name = key.Name
	return o
}

func (r *Resolver) applyCluster(s resource.Source, u Update) {
	name := u.Key.Name
	if top := r.clusters.top(name); top != nil && top.err == nil {
		r.uses.remove(name, top.value)
	}
	var res *result[*resource.Cluster]
	if u.Raw != nil {
		res = &result[*resource.Cluster]{value: u.Cluster, from: resource.Provenance{Source: s, Updated: u.Updated}}
	}
	if res != nil && res.value == nil {
		d, err := resource.DecodeCluster(u.Raw, r.optionsFor(u.Key))
		if res.err = err; err == nil {
			res.value = d.Value
		}
	}
	r.clusters.put(name, s, res)
	if top := r.clusters.top(name); top != nil && top.err == nil {
		r.uses.add(name, top.value)
	}
}

func (r *Resolver) applyAssignment(s resource.Source, u Update) {
	name := u.Key.Name
	if u.Raw == nil {
		r.assignments.put(name, s, nil)
		return
	}
	res := &result[*resource.Assignment]{value: u.Assignment, from: resource.Provenance{Source: s, Updated: u.Updated}}
	if res.value == nil {
		d, err := resource.DecodeAssignment(u.Raw, r.optionsFor(u.Key))
		if res.err = err; err == nil {
			res.value = d.Value
		}
	}
	// What trees use now is what they should find unchanged, whichever source
	// it was of.
	if top := r.assignments.top(name); top != nil && res.value != nil {
		res.value = res.value.Reuse(top.value)
	}
	r.assignments.put(name, s, res)
}

// resolve makes the cluster's config anew. ok is false where it stays as it is,
// also while something new that it needs is not known yet.
func (r *Resolver) resolve(name string) (c Change, ok bool) {
	old := r.current[name]
	root := r.cluster(name)
	if root == nil {
		delete(r.current, name)
		delete(r.defaults, name)
		return Change{Target: Target(name)}, old != nil
	}
	config := &resource.Config{
		Target:   Target(name),
		Roots:    []string{name},
		Clusters: map[string]*resource.ClusterConfig{name: root},
	}
	if root.Err == nil && root.Cluster.Type == resource.ClusterAggregate {
		r.expand(config, root)
	}
	if old != nil && (root.Pending || same(old, config)) {
		return Change{}, false
	}
	r.current[name] = config
	return Change{Target: config.Target, Config: config}, true
}

// cluster is a cluster with what serves it, or nil where nothing is known of it.
func (r *Resolver) cluster(name string) *resource.ClusterConfig {
	cc := &resource.ClusterConfig{}
	switch c := r.clusters.top(name); {
	case c == nil && r.assignments.top(name) == nil:
		return nil
	case c == nil:
		if r.defaults[name] == nil {
			r.defaults[name] = resource.DefaultCluster(name)
		}
		cc.Cluster, cc.ClusterFrom.Source = r.defaults[name], resource.SourceDefault
	case c.err != nil:
		cc.Err, cc.ClusterFrom = c.err, c.from
		return cc
	default:
		cc.Cluster, cc.ClusterFrom = c.value, c.from
	}
	switch cc.Cluster.Type {
	case resource.ClusterAggregate:
		cc.AssignmentFrom = cc.ClusterFrom
	case resource.ClusterLogicalDNS:
		r.assign(cc, r.hosts[cc.Cluster.DNSHostname])
		cc.Pending = cc.Assignment == nil && cc.AssignmentErr == nil
	default:
		service := cc.Cluster.AssignmentName()
		r.assign(cc, r.assignments.top(service))
		if cc.Assignment == nil && cc.AssignmentErr == nil {
			cc.AssignmentErr = fmt.Errorf("no endpoints: %s is not known",
				resource.Key{Type: resource.TypeAssignment, Name: service})
		}
	}
	return cc
}

func (r *Resolver) assign(cc *resource.ClusterConfig, a *result[*resource.Assignment]) {
	cc.AssignmentFrom = cc.ClusterFrom
	if a != nil {
		cc.Assignment, cc.AssignmentErr, cc.AssignmentFrom = a.value, a.err, a.from
	}
}

// same reports whether two configs of one root say the same.
func same(a, b *resource.Config) bool {
	return maps.EqualFunc(a.Clusters, b.Clusters, func(x, y *resource.ClusterConfig) bool {
		return x.Cluster == y.Cluster && x.ClusterFrom == y.ClusterFrom && x.Pending == y.Pending &&
			x.Assignment == y.Assignment && x.AssignmentFrom == y.AssignmentFrom &&
			slices.Equal(x.Leaves, y.Leaves) &&
			text(x.Err) == text(y.Err) && text(x.AssignmentErr) == text(y.AssignmentErr)
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
