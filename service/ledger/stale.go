package ledger

import "github.com/lbd-dev/lbd/xds/resource"

// isStale reports whether what a cluster of a target is served by may be out of date:
// whether part of it is of a management server that is away.
func (l *Ledger) isStale(c *Cluster) bool {
	config := c.Config
	stale := func(from resource.Provenance, name string) bool {
		return from.Source == resource.SourceCache || from.Source == resource.SourceADS && l.servers != nil && l.servers.Away(config.Target, name)
	}
	if config.Listener != nil && stale(config.ListenerFrom, config.Listener.Name) ||
		config.RouteName != "" && stale(config.RoutesFrom, config.RouteName) {
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
		if leaf.Err != nil {
			continue // it serves nothing
		}
		if stale(leaf.ClusterFrom, leaf.Cluster.Name) || stale(leaf.AssignmentFrom, leaf.Cluster.AssignmentName()) {
			return true
		}
	}
	return false
}

// Freshen finds out again which clusters of targets are stale, and which server gets
// their load reports: a management server has come or gone, or the targets use another
// one. nil stands for all targets.
func (l *Ledger) Freshen(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.Hosted()
	if names == nil {
		for t := range h.All() {
			l.freshen(t)
		}
		return
	}
	for _, name := range names {
		if t := h.Named(name); t != nil {
			l.freshen(t)
		}
	}
}

func (l *Ledger) freshen(t *Target) {
	for _, c := range t.View().Clusters {
		c.SetStale(l.isStale(c))
		for _, leaf := range c.Leaves {
			l.reports.follow(t.Name, leaf)
		}
	}
}
