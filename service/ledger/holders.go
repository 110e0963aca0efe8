package ledger

import "github.com/lbd-dev/lbd/xds/resource"

// held are totals, and how many records and leaves hold them.
type held struct {
	*Totals

	holders int
}

// open begins a record. It is called under l.mu.
func (l *Ledger) open(t *Target, cluster string) *Record {
	r := &Record{Target: t, Name: cluster, Counts: new(Counts)}
	if cluster != "" {
		r.Totals = l.share(cluster)
	}
	if r.OwnSeries = l.series < l.options.MaxSeries && cluster != OverflowCluster; r.OwnSeries {
		l.series++
	} else {
		r.Counts = &l.Rest
	}
	return r
}

// shut ends a record. It is called under l.mu.
func (l *Ledger) shut(r *Record) {
	if r.OwnSeries {
		l.series--
	}
	if r.Totals != nil {
		l.unshare(r.Totals)
	}
}

// share returns the totals of a cluster, for a record or a leaf to hold. It is called
// under l.mu.
func (l *Ledger) share(cluster string) *Totals {
	h := l.totals[cluster]
	if h.Totals == nil {
		h.Totals = newTotals(cluster)
		if h.OwnSeries = l.shown < l.options.MaxSeries && cluster != OverflowCluster; h.OwnSeries {
			l.shown++
		} else {
			h.Ends = &l.RestEnds
		}
	}
	h.holders++
	l.totals[cluster] = h
	return h.Totals
}

// unshare gives back what share returned. It is called under l.mu.
func (l *Ledger) unshare(t *Totals) {
	h := l.totals[t.Name]
	if h.holders--; h.holders > 0 {
		l.totals[t.Name] = h
		return
	}
	delete(l.totals, t.Name)
	if t.OwnSeries {
		l.shown--
	}
}

// hold returns the leaf of a cluster, which has to be released. It is called under l.mu.
func (l *Ledger) hold(cc *resource.ClusterConfig) Leaf {
	leaf := Leaf{ClusterConfig: cc, Totals: l.share(cc.Cluster.Name)}
	leaf.Counters = l.counters.Acquire(leaf.serviceKey())
	l.reports.begin(leaf)
	return leaf
}

// releaseLeaves gives back leaves. It is called under l.mu.
func (l *Ledger) releaseLeaves(leaves []Leaf) {
	for _, leaf := range leaves {
		l.reports.end(leaf)
		leaf.Counters.Release()
		l.unshare(leaf.Totals)
	}
}
