package resolver_test

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/lbd-dev/lbd/xds/resolver"
	"github.com/lbd-dev/lbd/xds/resource"
)

func pending(c *resource.Config) bool {
	for _, cc := range c.Clusters.All() {
		if cc.Pending {
			return true
		}
	}
	return c.Pending
}

// checkHeld checks that a target that waits uses all changes by hand, but those that it says it does not.
func (m *model) checkHeld(t *rapid.T, r *resolver.Resolver, c *resource.Config) {
	if pending(c) {
		return
	}
	waits := make(map[resource.Key]bool)
	for _, key := range r.Waiting()[c.Target] {
		waits[key] = true
	}
	check := func(key resource.Key, from resource.Provenance) {
		want := m.top(c.Target, key)
		if waits[key] || !m.covered(key) && !from.Source.ByHand() || m.covered(key) && from.Source.ByHand() && from.Version == want.Version {
			return
		}
		t.Fatalf("%s uses %s of %s, version %q, not version %q; it waits for %v", c.Target, key, from.Source, from.Version, want.Version, r.Waiting()[c.Target])
	}
	if in := c.Routing; in != nil {
		check(resource.Key{Type: resource.TypeListener, Name: in.Listener.Name}, in.ListenerFrom)
		if in.RouteName != "" && in.Listener.RouteName == in.RouteName {
			check(resource.Key{Type: resource.TypeRoutes, Name: in.RouteName}, in.RoutesFrom)
		}
	}
	for name, cc := range c.Clusters.All() {
		if cc.Err != nil {
			continue
		}
		check(resource.Key{Type: resource.TypeCluster, Name: name}, cc.ClusterFrom)
		if cc.Cluster.Type == resource.ClusterAggregate {
			continue
		}
		if cc.Cluster.Type == resource.ClusterEDS && cc.Assignment != nil {
			check(resource.Key{Type: resource.TypeAssignment, Name: cc.Cluster.AssignmentName()}, cc.AssignmentFrom)
		}
		if !slices.Equal(cc.Overlays(), m.overlaid[name]) {
			t.Fatalf("%s: %s has the overlays %v, not %v", c.Target, name, cc.Overlays(), m.overlaid[name])
		}
	}
}
