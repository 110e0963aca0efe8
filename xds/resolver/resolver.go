package resolver

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Target returns the target that serves one cluster by name.
func Target(cluster string) string { return "cluster:" + cluster }

// Update is what a source says of one resource.
type Update struct {
	Key resource.Key
	// Raw is the resource as the decoder wrote it; nil where the source has
	// it no more.
	Raw     []byte
	Updated time.Time
}

// Change is a target's new config.
type Change struct {
	Cluster string
	// Config is nil where the target is no more.
	Config *resource.Config
}

// Resolver holds the resources of every source as values, and every target's
// config. Its methods must be called one after another.
type Resolver struct {
	clusters    layers[*resource.Cluster]
	assignments layers[*resource.Assignment]
	// users are the clusters that an assignment serves, by its name.
	users map[string]map[string]bool
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

// New returns a Resolver without resources.
func New() *Resolver {
	return &Resolver{
		clusters:    make(layers[*resource.Cluster]),
		assignments: make(layers[*resource.Assignment]),
		users:       make(map[string]map[string]bool),
		defaults:    make(map[string]*resource.Cluster),
		current:     make(map[string]*resource.Config),
	}
}

// Apply takes what a source says, and returns the targets that this changes, in
// the order of their names.
func (r *Resolver) Apply(s resource.Source, updates []Update) []Change {
	affected := make(map[string]bool)
	for _, u := range updates {
		affected[u.Key.Name] = true
		switch u.Key.Type {
		case resource.TypeCluster:
			r.applyCluster(s, u)
		case resource.TypeAssignment:
			r.applyAssignment(s, u)
			for user := range r.users[u.Key.Name] {
				affected[user] = true
			}
		}
	}
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(affected)) {
		if c, ok := r.resolve(name); ok {
			changes = append(changes, c)
		}
	}
	return changes
}

func options(key resource.Key) resource.Options {
	return resource.Options{Origin: resource.ByHand, Format: resource.FormatProtobuf, Name: key.Name}
}

func (r *Resolver) applyCluster(s resource.Source, u Update) {
	name := u.Key.Name
	r.use(name, r.clusters.top(name), false)
	defer func() { r.use(name, r.clusters.top(name), true) }()
	if u.Raw == nil {
		r.clusters.put(name, s, nil)
		return
	}
	res := &result[*resource.Cluster]{from: resource.Provenance{Source: s, Updated: u.Updated}}
	d, err := resource.DecodeCluster(u.Raw, options(u.Key))
	if res.err = err; err == nil {
		res.value = d.Value
	}
	r.clusters.put(name, s, res)
}

// use notes, or forgets, whose assignment a cluster uses.
func (r *Resolver) use(name string, c *result[*resource.Cluster], uses bool) {
	if c == nil || c.err != nil {
		return
	}
	service := c.value.AssignmentName()
	if uses {
		if r.users[service] == nil {
			r.users[service] = make(map[string]bool)
		}
		r.users[service][name] = true
		return
	}
	delete(r.users[service], name)
	if len(r.users[service]) == 0 {
		delete(r.users, service)
	}
}

func (r *Resolver) applyAssignment(s resource.Source, u Update) {
	name := u.Key.Name
	if u.Raw == nil {
		r.assignments.put(name, s, nil)
		return
	}
	var old *resource.Assignment
	if top := r.assignments.top(name); top != nil {
		old = top.value
	}
	res := &result[*resource.Assignment]{from: resource.Provenance{Source: s, Updated: u.Updated}}
	d, err := resource.DecodeAssignment(u.Raw, options(u.Key))
	if res.err = err; err == nil {
		// What trees use now is what they should find unchanged, whichever
		// source it was of.
		res.value = d.Value.Reuse(old)
	}
	r.assignments.put(name, s, res)
}

// resolve makes the cluster's config anew. ok is false where it stays as it is.
func (r *Resolver) resolve(name string) (c Change, ok bool) {
	cluster, assignment := r.clusters.top(name), r.assignments.top(name)
	old := r.current[name]
	if cluster == nil && assignment == nil {
		delete(r.current, name)
		delete(r.defaults, name)
		return Change{Cluster: name}, old != nil
	}
	cc := r.assign(cluster, name)
	if old != nil && same(old.Clusters[name], cc) {
		return Change{}, false
	}
	config := &resource.Config{
		Target:   Target(name),
		Roots:    []string{name},
		Clusters: map[string]*resource.ClusterConfig{name: cc},
	}
	r.current[name] = config
	return Change{Cluster: name, Config: config}, true
}

// assign joins a cluster, or the default one, with its assignment.
func (r *Resolver) assign(c *result[*resource.Cluster], name string) *resource.ClusterConfig {
	cc := &resource.ClusterConfig{}
	switch {
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
	service := cc.Cluster.AssignmentName()
	if a := r.assignments.top(service); a != nil {
		cc.Assignment, cc.AssignmentErr, cc.AssignmentFrom = a.value, a.err, a.from
	} else {
		cc.AssignmentErr = fmt.Errorf("no endpoints: %s is not known",
			resource.Key{Type: resource.TypeAssignment, Name: service})
		cc.AssignmentFrom = cc.ClusterFrom
	}
	return cc
}

func same(a, b *resource.ClusterConfig) bool {
	return a.Cluster == b.Cluster && a.ClusterFrom == b.ClusterFrom &&
		a.Assignment == b.Assignment && a.AssignmentFrom == b.AssignmentFrom &&
		text(a.Err) == text(b.Err) && text(a.AssignmentErr) == text(b.AssignmentErr)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
