package service

import (
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/lrs"
	"github.com/lbd-dev/lbd/xds/resource"
)

// LoadReports is what the service asks of load reports.
type LoadReports interface {
	// Report begins to report the load of clusters to a server, or goes on with
	// it there. It never waits.
	Report(server bootstrap.Server, clusters ...lrs.Key)
	// Stop ends the reports of clusters, once their last load is reported.
	Stop(clusters ...lrs.Key)
	// Status tells how reports go.
	Status() []lrs.ServerStatus
}

// reports tells the load of which clusters goes to which server. Its methods are
// called under ts.mu.
type reports struct {
	to LoadReports
	// server is the one that a target uses for a resource; nil where there is none
	// yet. connected reports whether one is in use and answers.
	server    func(target, name string) *bootstrap.Server
	connected func(bootstrap.Server) bool
}

// wantsReports reports whether the management server that a cluster is from wants its
// load (lrs_server: self).
func wantsReports(cc *resource.ClusterConfig) bool {
	return cc.Cluster.LRSToSelf && cc.ClusterFrom.Source == resource.SourceADS
}

// follow begins the load reports of a leaf of a target, if they are wanted, or moves
// them to the server that the target uses now. A cluster that targets have of several
// servers is reported to the one that came first, while it is connected. The reports
// end with the last leaf that wants them (release): another target may still have the
// same cluster from the last known good, where nobody is known to want them.
func (r *reports) follow(target string, l leaf) {
	if r == nil || !l.reports {
		return
	}
	c := l.counters
	s := r.server(target, l.Cluster.Name)
	if s == nil || c.reported != nil && c.reported.Key() != s.Key() && r.connected(*c.reported) {
		return
	}
	c.reported = s
	r.to.Report(*s, lrs.Key(c.service))
}

// end ends the reports of counters.
func (r *reports) end(c *leafCounters) {
	if r != nil && c.reported != nil {
		c.reported = nil
		r.to.Stop(lrs.Key(c.service))
	}
}
