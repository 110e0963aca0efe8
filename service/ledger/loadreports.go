package ledger

import (
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Servers is what the ledger asks about management servers.
type Servers interface {
	// Away reports whether no server that a target uses for a resource is connected.
	Away(target, name string) bool
	// Server returns the server that a target uses for a resource; nil where it
	// wants nothing of its authority.
	Server(target, name string) *bootstrap.Server
	// Connected reports whether a server is in use by some target, and answers.
	Connected(s bootstrap.Server) bool
}

// LoadReports is what the ledger asks of load reports.
type LoadReports interface {
	// Report begins to report the load of clusters to a server, or goes on with
	// it there. It never waits.
	Report(server bootstrap.Server, clusters ...resource.ServiceKey)
	// Stop ends the reports of clusters, once their last load is reported.
	Stop(clusters ...resource.ServiceKey)
}

// loadReports knows the server that gets the load of each {cluster, EDS service name}.
// A nil *loadReports reports nothing.
type loadReports struct {
	servers Servers
	reports LoadReports
	wanted  map[resource.ServiceKey]*subscription // guarded by the ledger's mu
}

// subscription is a request for load reports.
type subscription struct {
	leaves int               // that want them
	server *bootstrap.Server // the one that gets them; nil for none yet
}

// wantsReports reports whether the management server that a leaf is from wants its load
// (lrs_server: self).
func (leaf Leaf) wantsReports() bool {
	return leaf.Cluster.LRSToSelf && leaf.ClusterFrom.Source == resource.SourceADS
}

func (r *loadReports) begin(leaf Leaf) {
	if r == nil || !leaf.wantsReports() {
		return
	}
	if key := leaf.Cluster.ServiceKey(); r.wanted[key] == nil {
		r.wanted[key] = &subscription{}
	}
	r.wanted[leaf.Cluster.ServiceKey()].leaves++
}

// follow begins the load reports of a leaf of a target, if they are wanted, or moves
// them to the server that the target uses now. A cluster that targets have of several
// servers is reported to the one that came first, while it is connected. The reports
// end with the last leaf that wants them (end): another target may still have the
// same cluster from the last known good, where no server is known to want them.
func (r *loadReports) follow(target string, leaf Leaf) {
	if r == nil || !leaf.wantsReports() {
		return
	}
	key := leaf.Cluster.ServiceKey()
	s, server := r.wanted[key], r.servers.Server(target, leaf.Cluster.Name)
	if server == nil || s.server != nil && s.server.Key() != server.Key() && r.servers.Connected(*s.server) {
		return
	}
	s.server = server
	r.reports.Report(*server, key)
}

// end removes a leaf that begin counted.
func (r *loadReports) end(leaf Leaf) {
	if r == nil || !leaf.wantsReports() {
		return
	}
	key := leaf.Cluster.ServiceKey()
	s := r.wanted[key]
	if s.leaves--; s.leaves > 0 {
		return
	}
	delete(r.wanted, key)
	if s.server != nil {
		r.reports.Stop(key)
	}
}

// Loads returns the load of the picks of all trees, for load reports.
func (l *Ledger) Loads() lrs.Loads { return loads{l.counters} }

type loads struct{ counters *policy.Counters }

func (s loads) Open(key resource.ServiceKey) lrs.Counters { return s.counters.ReadLoad(key) }

// isStale reports whether resources of a cluster are from a management server that is
// unreachable.
func (l *Ledger) isStale(c *Cluster) bool {
	config := c.Config
	stale := func(from resource.Provenance, name string) bool {
		return from.Source == resource.SourceCache || from.Source == resource.SourceADS && l.servers != nil && l.servers.Away(config.Target, name)
	}
	if r := config.Routing; r != nil &&
		(stale(r.ListenerFrom, r.Listener.Name) || r.RouteName != "" && stale(r.RoutesFrom, r.RouteName)) {
		return true
	}
	cc := c.ClusterConfig()
	if cc.Err != nil {
		return false // nothing serves it
	}
	if stale(cc.ClusterFrom, c.Name) {
		return true
	}
	for _, leaf := range config.Leaves(c.Name) {
		// A leaf with an error serves nothing.
		if leaf.Err == nil && (stale(leaf.ClusterFrom, leaf.Cluster.Name) || stale(leaf.AssignmentFrom, leaf.Cluster.AssignmentName())) {
			return true
		}
	}
	return false
}

// ServersChanged updates which clusters of targets are stale, and which server gets their
// load reports, after a management server was connected or disconnected, or the targets
// changed their server. nil is all targets.
func (l *Ledger) ServersChanged(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.Hosted()
	targets := h.All()
	if names != nil {
		targets = func(yield func(*Target) bool) {
			for _, name := range names {
				if t := h.Named(name); t != nil && !yield(t) {
					return
				}
			}
		}
	}
	for t := range targets {
		for _, c := range t.View().Clusters.All() {
			c.SetStale(l.isStale(c))
			for _, leaf := range c.Leaves {
				l.reports.follow(t.Name, leaf)
			}
		}
	}
}
