package service

import "github.com/lbd-dev/lbd/xds/resource"

// stale reports whether what a cluster of a target is served by may be out of
// date: whether part of it is of a management server that is away. It is called
// under ts.mu.
func (ts *targets) stale(config *resource.Config, cluster string) bool {
	stale := func(from resource.Provenance, name string) bool {
		return from.Source == resource.SourceCache || from.Source == resource.SourceADS && ts.away(config.Target, name)
	}
	if config.Listener != nil && stale(config.ListenerFrom, config.Listener.Name) ||
		config.RouteName != "" && stale(config.RoutesFrom, config.RouteName) {
		return true
	}
	cc := config.Clusters[cluster]
	if cc.Err != nil {
		return false // nothing serves it
	}
	if stale(cc.ClusterFrom, cluster) {
		return true
	}
	for _, leaf := range config.Leaves(cluster) {
		if leaf.Err != nil {
			continue // it serves nothing
		}
		if stale(leaf.ClusterFrom, leaf.Cluster.Name) || stale(leaf.AssignmentFrom, leaf.Cluster.AssignmentName()) {
			return true
		}
	}
	return false
}

// freshen finds out again which clusters of targets are stale, and which server gets
// their load reports: a management server has come or gone, or the targets use another
// one. nil stands for all targets.
func (ts *targets) freshen(names []string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	h := ts.current.Load()
	if names == nil {
		for _, t := range h.all() {
			ts.freshenTarget(t)
		}
		return
	}
	for _, name := range names {
		if t := h.named(name); t != nil {
			ts.freshenTarget(t)
		}
	}
}

func (ts *targets) freshenTarget(t *target) {
	for _, m := range t.newest.Load().members {
		m.stale.Store(ts.stale(m.config, m.cluster))
		for _, l := range m.leaves {
			ts.reports.follow(t.name, l)
		}
	}
}
