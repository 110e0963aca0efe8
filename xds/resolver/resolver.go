package resolver

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// Target returns the target that serves one cluster by name.
func Target(cluster string) string { return "cluster:" + cluster }

// Change is a target's new config.
type Change struct {
	Cluster string
	// Config is nil where the target is no more.
	Config *resource.Config
}

// Resolver holds the pushed resources as values, and every target's config.
// Its methods must be called one after another: the store's writer does.
type Resolver struct {
	clusters    map[string]result[*resource.Cluster]
	assignments map[string]result[*resource.Assignment]
	// users are the clusters that an assignment serves, by its name.
	users map[string]map[string]bool
	// defaults stand for the configurations of clusters without.
	defaults map[string]*resource.Cluster
	current  map[string]*resource.Config // by cluster
}

// result is a stored resource as a value, or why it is none: one that an older
// lbd took may break a rule of this one.
type result[V any] struct {
	value V
	err   error
}

// New returns a Resolver without resources.
func New() *Resolver {
	return &Resolver{
		clusters:    make(map[string]result[*resource.Cluster]),
		assignments: make(map[string]result[*resource.Assignment]),
		users:       make(map[string]map[string]bool),
		defaults:    make(map[string]*resource.Cluster),
		current:     make(map[string]*resource.Config),
	}
}

// Load takes all of a snapshot, and returns every target.
func (r *Resolver) Load(s *store.Snapshot) []Change {
	var keys []resource.Key
	for e := range s.All() {
		keys = append(keys, e.Key)
	}
	return r.Apply(s, keys)
}

// Apply takes the resources that changed, as they are in after, and returns the
// targets that this changes, in the order of their names.
func (r *Resolver) Apply(after *store.Snapshot, changed []resource.Key) []Change {
	affected := make(map[string]bool)
	for _, key := range changed {
		entry, ok := after.Get(key)
		switch key.Type {
		case resource.TypeCluster:
			r.applyCluster(key.Name, entry.Raw, ok)
			affected[key.Name] = true
		case resource.TypeAssignment:
			r.applyAssignment(key.Name, entry.Raw, ok)
			affected[key.Name] = true
			for user := range r.users[key.Name] {
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

func (r *Resolver) applyCluster(name string, raw []byte, ok bool) {
	old, had := r.clusters[name]
	if had && old.err == nil {
		service := old.value.AssignmentName()
		delete(r.users[service], name)
		if len(r.users[service]) == 0 {
			delete(r.users, service)
		}
	}
	if !ok {
		delete(r.clusters, name)
		return
	}
	d, err := resource.DecodeCluster(raw, resource.Options{Origin: resource.ByHand, Format: resource.FormatProtobuf, Name: name})
	if err != nil {
		r.clusters[name] = result[*resource.Cluster]{err: err}
		return
	}
	r.clusters[name] = result[*resource.Cluster]{value: d.Value}
	service := d.Value.AssignmentName()
	if r.users[service] == nil {
		r.users[service] = make(map[string]bool)
	}
	r.users[service][name] = true
}

func (r *Resolver) applyAssignment(name string, raw []byte, ok bool) {
	if !ok {
		delete(r.assignments, name)
		return
	}
	d, err := resource.DecodeAssignment(raw, resource.Options{Origin: resource.ByHand, Format: resource.FormatProtobuf, Name: name})
	if err != nil {
		r.assignments[name] = result[*resource.Assignment]{err: err}
		return
	}
	r.assignments[name] = result[*resource.Assignment]{value: d.Value.Reuse(r.assignments[name].value)}
}

// resolve makes the cluster's config anew. ok is false where it stays as it is.
func (r *Resolver) resolve(name string) (c Change, ok bool) {
	cluster, configured := r.clusters[name]
	_, assigned := r.assignments[name]
	old := r.current[name]
	if !configured && !assigned {
		delete(r.current, name)
		delete(r.defaults, name)
		return Change{Cluster: name}, old != nil
	}
	var cc *resource.ClusterConfig
	switch {
	case cluster.err != nil:
		cc = &resource.ClusterConfig{Err: cluster.err}
	case configured:
		cc = r.assign(cluster.value)
	default:
		if r.defaults[name] == nil {
			r.defaults[name] = resource.DefaultCluster(name)
		}
		cc = r.assign(r.defaults[name])
	}
	if old != nil && same(old.Clusters[name], cc) {
		return Change{}, false
	}
	config := &resource.Config{
		Target:   Target(name),
		Clusters: map[string]*resource.ClusterConfig{name: cc},
	}
	r.current[name] = config
	return Change{Cluster: name, Config: config}, true
}

// assign joins a cluster with its assignment.
func (r *Resolver) assign(c *resource.Cluster) *resource.ClusterConfig {
	a, ok := r.assignments[c.AssignmentName()]
	if !ok {
		a.err = fmt.Errorf("no endpoints: %s is not known",
			resource.Key{Type: resource.TypeAssignment, Name: c.AssignmentName()})
	}
	return &resource.ClusterConfig{Cluster: c, Assignment: a.value, AssignmentErr: a.err}
}

func same(a, b *resource.ClusterConfig) bool {
	return a.Cluster == b.Cluster && a.Assignment == b.Assignment && text(a.Err) == text(b.Err) &&
		text(a.AssignmentErr) == text(b.AssignmentErr)
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
