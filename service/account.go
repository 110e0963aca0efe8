package service

import "sync/atomic"

// shared is what is counted of a cluster whichever target it is picked from.
type shared struct {
	// Fixed after build.
	cluster string
	// ownSeries is false for a cluster beyond MaxClustersWithSeries. What ended is
	// counted together with all other such.
	ownSeries bool
	ended     *tally[Outcome]
	ejections *tally[bool] // of outlier detection, by whether they were enforced

	leases  atomic.Int64
	holders int // guarded by the targets' mu
}

func newShared(cluster string) *shared {
	return &shared{cluster: cluster, ended: new(tally[Outcome]), ejections: new(tally[bool])}
}

// open begins an account. It is called under ts.mu.
func (ts *targets) open(t *target, cluster string) *account {
	a := &account{target: t, cluster: cluster, counts: new(counts)}
	if cluster != "" {
		a.shared = ts.share(cluster)
	}
	if a.ownSeries = ts.withSeries < ts.maxSeries && cluster != OverflowCluster; a.ownSeries {
		ts.withSeries++
	} else {
		a.counts = &ts.rest
	}
	return a
}

// shut ends an account. It is called under ts.mu.
func (ts *targets) shut(a *account) {
	if a.ownSeries {
		ts.withSeries--
	}
	if a.shared != nil {
		ts.unshare(a.shared)
	}
}

// share returns what is counted of a cluster, for somebody to hold. It is called
// under ts.mu.
func (ts *targets) share(cluster string) *shared {
	c := ts.clusters[cluster]
	if c == nil {
		c = newShared(cluster)
		if c.ownSeries = ts.sharing < ts.maxSeries && cluster != OverflowCluster; c.ownSeries {
			ts.sharing++
		} else {
			c.ended, c.ejections = &ts.restEnded, &ts.restEjections
		}
		ts.clusters[cluster] = c
	}
	c.holders++
	return c
}

// unshare gives back what share returned. It is called under ts.mu.
func (ts *targets) unshare(c *shared) {
	if c.holders--; c.holders > 0 {
		return
	}
	delete(ts.clusters, c.cluster)
	if c.ownSeries {
		ts.sharing--
	}
}
