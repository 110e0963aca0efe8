package parity_test

import (
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// lastGood has the resources that clients use for a target after each step. If a resource
// was rejected or deleted, its last good version stays in use; a resource without
// subscriptions is dropped.
type lastGood struct {
	listener held[listened]
	routes   map[string]held[[]virtualHost] // by name
	clusters map[string]held[*clusterv3.Cluster]
	leaves   map[string]accepted // by cluster; their assignments may be nil
	policies map[string]chosen
	of       map[string][]string // what aggregates are made of

	// failure is why every request fails; if empty, host serves.
	failure kind
	host    *virtualHost
	// wants are the clusters that both sides subscribe to, passedOver those of lbd only:
	// parts of an aggregate after one that cannot be used.
	wants, passedOver map[string]bool
}

// chosen is a cluster's policy, and the fields that chose it.
type chosen struct {
	*lbPolicy

	asked *clusterv3.Cluster
}

// held is a requested resource.
type held[T any] struct {
	value T
	why   kind // why there is none; empty if there is one
}

type listened struct {
	routesName string
	hosts      []virtualHost
}

// take applies a step. refused reports which resources were rejected.
func (g *lastGood) take(h *hosting, r resources, refused func(url, name string) bool) {
	switch {
	case r.listener == nil && (g.listener.why == badTarget || g.listener.value.hosts != nil): // the last good one stays in use
	case r.listener == nil:
		g.listener = held[listened]{why: noListener}
	case !refused(resourcev3.ListenerType, h.target):
		g.listener = held[listened]{value: listened{h.routesName, h.hosts}}
	case g.listener.value.hosts == nil:
		g.listener.why = badTarget
	}
	g.failure, g.host = g.listener.why, nil
	routes := make(map[string]held[[]virtualHost])
	hosts := g.listener.value.hosts
	if name := g.listener.value.routesName; g.failure == "" && name != "" {
		is := g.routes[name]
		switch {
		case r.routes.GetName() != name: // it stays
			if is.value == nil && is.why == "" {
				is.why = noRoutes
			}
		case !refused(resourcev3.RouteType, name):
			is = held[[]virtualHost]{value: h.hosts}
		case is.value == nil:
			is.why = badTarget
		}
		routes[name] = is
		g.failure, hosts = is.why, is.value
	}
	g.routes = routes
	if g.failure == "" {
		if g.host = best(hosts, h.target); g.host == nil {
			g.failure = noHost
		}
	}
	if g.failure == "" {
		g.takeClusters(h, r, refused)
	}
}

func (g *lastGood) takeClusters(h *hosting, r resources, refused func(url, name string) bool) {
	before := *g
	g.clusters, g.leaves = make(map[string]held[*clusterv3.Cluster]), make(map[string]accepted)
	g.policies, g.of = make(map[string]chosen), make(map[string][]string)
	g.wants, g.passedOver = make(map[string]bool), make(map[string]bool)
	sent := make(map[string]*clusterv3.Cluster)
	for _, c := range r.clusters {
		sent[c.GetName()] = c
	}
	next := sentTo{h: h, resources: r, before: &before, refused: refused, clusters: sent}
	for _, name := range g.roots() {
		g.walk(name, &next, make(map[string]bool), false)
	}
}

// roots are the clusters of the routes.
func (g *lastGood) roots() []string {
	var names []string
	for _, r := range g.host.routes {
		if r.action != forward {
			continue
		}
		for _, c := range r.clusters {
			if c.weight > 0 && !slices.Contains(names, c.cluster) {
				names = append(names, c.cluster)
			}
		}
	}
	return names
}

// sentTo has the resources of a step.
type sentTo struct {
	resources

	h        *hosting
	before   *lastGood
	refused  func(url, name string) bool
	clusters map[string]*clusterv3.Cluster
}

// either returns demanded if got is the same for a client that waited long enough: a
// rejected resource without a good version does not exist then.
func either(demanded, got kind) kind {
	switch {
	case demanded == badTarget && (got == noListener || got == noRoutes), demanded == badCluster && got == noCluster:
		return demanded
	}
	return got
}

// walk takes a cluster and its parts. over is true after a part that cannot be used: lbd
// subscribes nevertheless. It reports whether the cluster can be used.
func (g *lastGood) walk(name string, s *sentTo, seen map[string]bool, over bool) bool {
	if seen[name] {
		return true
	}
	seen[name] = true
	if over {
		g.passedOver[name] = true
	} else {
		g.wants[name] = true
	}
	g.takeCluster(name, s)
	c := g.clusters[name]
	if c.why != "" {
		return false
	}
	fine := true
	for _, leaf := range g.of[name] {
		if !g.walk(leaf, s, seen, over || !fine) {
			fine = false
		}
	}
	return fine
}

func (g *lastGood) takeCluster(name string, s *sentTo) {
	c := s.before.clusters[name]
	g.policies[name], g.of[name] = s.before.policies[name], s.before.of[name]
	switch sent := s.clusters[name]; {
	case sent == nil && (c.why == badCluster || c.value != nil): // the last good one stays in use
	case sent == nil:
		c = held[*clusterv3.Cluster]{why: noCluster}
	case !s.refused(resourcev3.ClusterType, name):
		c = held[*clusterv3.Cluster]{value: sent}
		g.policies[name], g.of[name] = s.h.made(name)
	case c.value == nil:
		c.why = badCluster
	}
	g.clusters[name] = c
	if c.why != "" || len(g.of[name]) > 0 {
		return
	}
	leaf := accepted{cluster: c.value, assignment: s.before.leaves[name].assignment, policy: g.policies[name].lbPolicy}
	of := assignmentOf(c.value)
	for _, a := range s.assignments {
		if a.GetClusterName() == of && !s.refused(resourcev3.EndpointType, of) {
			leaf.assignment = a
		}
	}
	g.leaves[name] = leaf
}

// made returns a cluster's policy, and the parts of an aggregate.
func (h *hosting) made(name string) (p chosen, of []string) {
	for _, w := range h.leaves {
		if w.cluster == name {
			return chosen{w.policy, w.asked}, nil
		}
	}
	for _, a := range h.aggregates {
		all := a.names(a.of)
		if name == a.name {
			return chosen{a.policy, a.asked}, all[0]
		}
		if a.nested && name == a.nestedName() {
			return chosen{a.policy, a.asked}, all[1]
		}
	}
	return chosen{}, nil
}

// demand is what picks from a cluster must be like; or failures are why they fail. For an
// aggregate without a usable leaf, these are the failures of the leaves: grpc-go returns
// the first.
func (g *lastGood) demand(name string, up map[string]bool) (d *demand, failures []kind) {
	if c := g.clusters[name]; c.why != "" {
		return nil, []kind{c.why}
	}
	leaves := g.leavesOf(name, make(map[string]bool))
	for _, l := range leaves {
		if l.why != "" {
			failures = append(failures, l.why)
		}
	}
	if len(failures) == len(leaves) {
		return nil, failures
	}
	d = demandOf(leaves, up)
	for _, leaf := range g.leafNames(name, make(map[string]bool)) {
		d.apart = d.apart || g.clusters[leaf].why == "" && g.policies[leaf] != g.policies[name]
	}
	return d, nil
}

// leavesOf lists the leaves of a cluster, or the cluster itself.
func (g *lastGood) leavesOf(name string, seen map[string]bool) (all []accepted) {
	for _, leaf := range g.leafNames(name, seen) {
		l := g.leaves[leaf]
		l.why = g.clusters[leaf].why
		all = append(all, l)
	}
	return all
}

func (g *lastGood) leafNames(name string, seen map[string]bool) (all []string) {
	if seen[name] {
		return nil
	}
	seen[name] = true
	if g.clusters[name].why != "" || len(g.of[name]) == 0 {
		return []string{name}
	}
	for _, leaf := range g.of[name] {
		all = append(all, g.leafNames(leaf, seen)...)
	}
	return all
}
