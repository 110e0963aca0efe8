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
	// server is the one that a resource is asked of; nil where there is none yet.
	server func(name string) *bootstrap.Server
}

// follow lets reports follow a leaf: those of a cluster of a management server
// that wants them go to that one (lrs_server: self).
func (r *reports) follow(l leaf) {
	if r == nil {
		return
	}
	key := lrs.Key(l.counters.service)
	if !l.Cluster.LRSToSelf || l.ClusterFrom.Source != resource.SourceADS {
		if l.counters.reported {
			l.counters.reported = false
			r.to.Stop(key)
		}
		return
	}
	if s := r.server(l.Cluster.Name); s != nil {
		l.counters.reported = true
		r.to.Report(*s, key)
	}
}

// end ends the reports of counters that nobody holds any more.
func (r *reports) end(c *leafCounters) {
	if c.reported {
		r.to.Stop(lrs.Key(c.service))
	}
}
