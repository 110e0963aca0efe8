package ledger

import "github.com/lbd-dev/lbd/xds/resource"

// addRecord returns a new record. It is called under l.mu, like the functions below.
func (l *Ledger) addRecord(t *Target, cluster string) *Record {
	r := &Record{Target: t, Name: cluster, Counts: new(Counts)}
	if cluster != "" {
		r.Totals = l.acquireTotals(cluster)
	}
	if r.OwnSeries = l.recordSeries < l.options.MaxSeries && cluster != OverflowCluster; r.OwnSeries {
		l.recordSeries++
	} else {
		r.Counts = &l.Rest
	}
	return r
}

func (l *Ledger) removeRecord(r *Record) {
	if r.OwnSeries {
		l.recordSeries--
	}
	if r.Totals != nil {
		l.releaseTotals(r.Totals)
	}
}

// acquireTotals returns the totals of a cluster, for a record or a leaf.
func (l *Ledger) acquireTotals(cluster string) *Totals {
	t := l.totals[cluster]
	if t == nil {
		t = newTotals(cluster)
		if t.OwnSeries = l.totalsSeries < l.options.MaxSeries && cluster != OverflowCluster; t.OwnSeries {
			l.totalsSeries++
		} else {
			t.Ends = &l.RestEnds
		}
		l.totals[cluster] = t
	}
	t.users++
	return t
}

func (l *Ledger) releaseTotals(t *Totals) {
	if t.users--; t.users > 0 {
		return
	}
	delete(l.totals, t.Name)
	if t.OwnSeries {
		l.totalsSeries--
	}
}

// acquireLeaf returns the leaf of a cluster; releaseLeaves releases it.
func (l *Ledger) acquireLeaf(cc *resource.ClusterConfig) Leaf {
	leaf := Leaf{ClusterConfig: cc, Totals: l.acquireTotals(cc.Cluster.Name)}
	leaf.Counters = l.counters.Acquire(leaf.serviceKey())
	l.reports.begin(leaf)
	return leaf
}

func (l *Ledger) releaseLeaves(leaves []Leaf) {
	for _, leaf := range leaves {
		l.reports.end(leaf)
		leaf.Counters.Release()
		l.releaseTotals(leaf.Totals)
	}
}
