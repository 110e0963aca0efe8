package ledger

import (
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/decode"
)

const (
	// MaxClustersWithSeries is how many clusters have series of their own; the
	// rest are counted together as OverflowCluster.
	MaxClustersWithSeries = 10_000
	// OverflowCluster stands for the clusters without series of their own. A
	// cluster of this name, which cannot be pushed, is one of them.
	OverflowCluster = decode.ReservedName
)

// Record is what happens to one cluster in one target, for as long as the
// target has the cluster.
type Record struct {
	// Fixed after build.
	Target *Target
	Name   string // the cluster's; empty for a target's unrouted picks
	// OwnSeries is false beyond MaxClustersWithSeries: Counts are those of all such
	// records together.
	OwnSeries bool
	*Counts

	Totals *Totals // the cluster's; nil for unrouted picks

	stale   atomic.Bool
	ambient atomic.Pointer[Ambient]
}

// Result is the result of a pick, as metrics count it: OK, or the code of its error.
type Result string

// OK is the result of a pick that has an endpoint.
const OK Result = "ok"

// Counts are what metrics show of a cluster for each target.
type Counts struct {
	Picks    Tally[Result]
	Switches Tally[policy.SwitchReason]
	Connects Tally[string]
	Losses   Tally[string]
}

// Stale reports whether what serves the cluster may be out of date: part of it is of a
// management server that is away.
func (r *Record) Stale() bool { return r.stale.Load() }

// SetStale replaces what Stale returns, until the next config or [Ledger.Freshen].
func (r *Record) SetStale(stale bool) {
	if r.stale.Swap(stale) != stale {
		r.Target.Changed.Notify()
	}
}

// Ambient returns the cluster's resources that are in use in spite of an error.
func (r *Record) Ambient() *Ambient { return r.ambient.Load() }

// Totals is what is counted of a cluster whichever target it is picked from.
type Totals struct {
	// Fixed after build.
	Name string
	// OwnSeries is false beyond MaxClustersWithSeries: Ends are those of all such
	// clusters together.
	OwnSeries bool
	*Ends

	Leases atomic.Int64 // held now
}

// Ends are how leases and ejections ended.
type Ends struct {
	Outcomes  Tally[policy.Outcome]
	Ejections Tally[bool] // of outlier detection, by whether they were enforced
}

func newTotals(cluster string) *Totals { return &Totals{Name: cluster, Ends: new(Ends)} }
