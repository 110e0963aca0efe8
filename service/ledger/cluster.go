package ledger

import (
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/client"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Cluster is a cluster that the picks of a target can choose, as one config has
// it.
type Cluster struct {
	*Record

	Config *resource.Config // the whole target's
	// MaxLeaseShare is that of the cluster's own config; 0 for the default.
	MaxLeaseShare float64
	// Version grows when the config of the cluster, or of a leaf of it, changes.
	Version uint64
	Places  places
	// Leaves are those of the newest config that can be used. Their counters are held
	// here: a tree releases its own when the cluster fails, and what they count goes on.
	Leaves []Leaf
}

// CountPick counts a successful pick. An endpoint keeps its place after the first pick. The
// sum of the places is the number of all, because another counter would be one more shared
// write for each pick; only clusters without series of their own have it, together.
func (c *Cluster) CountPick(call *policy.Call) {
	if !c.OwnSeries {
		c.Picks.Add(OK)
	}
	if u := call.Upstream; u != nil {
		if p := u.Place.Load(); p != nil && p.Priority == call.Priority && p.Add() {
			return
		}
	}
	c.countPick(call)
}

// newPlace returns a place without picks. An AGGREGATE shares the loads of its leaves, which
// have places of their own.
func (c *Cluster) newPlace(l resource.Locality, priority int) *policy.Place {
	if len(c.Leaves) != 1 {
		return policy.NewPlace(priority)
	}
	return c.Leaves[0].Counters.NewPlace(l, priority)
}

// countPick is CountPick where the endpoint's place has changed or left the config.
func (c *Cluster) countPick(call *policy.Call) {
	p := c.Places.Get(place{call.Priority, call.Endpoint.Locality})
	if p == nil || !p.Add() {
		c.elsewhere.Add(1)
		return
	}
	if call.Upstream != nil {
		call.Upstream.Place.Store(p)
	}
}

// Succeeded is how many picks of the cluster in the target had an endpoint.
func (c *Cluster) Succeeded() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elsewhere.Load() + c.Places.Total()
}

// Results yields how many picks had each result; of a cluster without series of its own
// only the successful ones.
func (c *Cluster) Results() iter.Seq2[Result, uint64] {
	return func(yield func(Result, uint64) bool) {
		if !yield(OK, c.Succeeded()) {
			return
		}
		if !c.OwnSeries {
			return
		}
		for r, n := range c.Picks.All() {
			if !yield(r, n) {
				return
			}
		}
	}
}

// ClusterConfig is the cluster's own part of the config.
func (c *Cluster) ClusterConfig() *resource.ClusterConfig { return c.Config.Clusters.Get(c.Name) }

// Own returns the leaf that the cluster is itself. An AGGREGATE has none, nor has
// a cluster that cannot be used.
func (c *Cluster) Own() (_ Leaf, ok bool) {
	for _, leaf := range c.Leaves {
		if leaf.Cluster.Name == c.Name {
			return leaf, c.ClusterConfig().Err == nil
		}
	}
	return Leaf{}, false
}

// LeasesOf returns the leases of a leaf.
func (c *Cluster) LeasesOf(leaf string) *Leases {
	for i := range c.Leaves {
		if c.Leaves[i].Cluster.Name == leaf {
			return &c.Leaves[i].Totals.Leases
		}
	}
	return &newTotals(leaf).Leases // a pick that was made before it has left the config: nothing else counts there
}

// Holders returns the owners with the most leases of the first leaf whose circuit breaker is full; of the cluster if none
// is.
func (c *Cluster) Holders(now time.Time) []Holder {
	for _, leaf := range c.Leaves {
		if leaf.Breaker().Open {
			return leaf.Totals.Leases.Largest(now)
		}
	}
	return c.Totals.Leases.Largest(now)
}

// Updated returns when the newest of a cluster's resources became what it is.
func Updated(cc *resource.ClusterConfig) time.Time {
	if cc.ClusterFrom.Updated.After(cc.AssignmentFrom.Updated) {
		return cc.ClusterFrom.Updated.UTC()
	}
	return cc.AssignmentFrom.Updated.UTC()
}

// Usable counts the endpoints that picks may reach now.
func (c *Cluster) Usable() (n int) {
	for _, cc := range c.Config.Leaves(c.Name) {
		n += cc.Assignment.Usable()
	}
	return n
}

// Known reports whether a source or a route has the cluster. A name that only picks have
// is not known, and is shown nowhere.
func (c *Cluster) Known() bool {
	cc := c.ClusterConfig()
	switch {
	case c.Target.Label != "":
		return true // a route names it
	case cc.Cluster != nil: // with an error it is an aggregate that is not whole
		return !cc.Pending || cc.ClusterFrom.Source != resource.SourceDefault
	case cc.ClusterFrom.Source.ByHand():
		return true
	default:
		err, ok := errors.AsType[*client.ResourceError](cc.Err)
		return ok && err.Kind == client.ErrorRejected
	}
}

// isSameIn reports whether a newer config has the cluster, and what it comes down
// to, as it is.
func (c *Cluster) isSameIn(config *resource.Config) bool {
	if c.Config == nil || c.ClusterConfig() != config.Clusters.Get(c.Name) {
		return false
	}
	return !slices.ContainsFunc(c.ClusterConfig().Leaves, func(name string) bool {
		return c.Config.Clusters.Get(name) != config.Clusters.Get(name)
	})
}

// Localities yields the localities that the cluster comes down to, with their
// priorities in it. An AGGREGATE has those of its leaves in a row, each leaf one
// at least (gRFC A37).
func (c *Cluster) Localities() iter.Seq2[int, *resource.LocalityEndpoints] {
	return func(yield func(int, *resource.LocalityEndpoints) bool) {
		first := 0
		for _, cc := range c.Config.Leaves(c.Name) {
			last := first
			if cc.Assignment != nil {
				for _, l := range cc.Assignment.Localities {
					priority := first + int(l.Priority)
					last = max(last, priority)
					if !yield(priority, l) {
						return
					}
				}
			}
			first = last + 1
		}
	}
}

// LeafNames returns for each priority of an AGGREGATE the leaf that it belongs to;
// nil for any other cluster. A leaf without endpoints, or that is skipped, has one
// priority.
func (c *Cluster) LeafNames() []string {
	if own := c.ClusterConfig().Cluster; own == nil || own.Type != resource.ClusterAggregate {
		return nil
	}
	var names []string
	for name, cc := range c.Config.Leaves(c.Name) {
		first := len(names)
		names = append(names, name)
		if cc.Assignment == nil {
			continue
		}
		for _, l := range cc.Assignment.Localities {
			for len(names) <= first+int(l.Priority) {
				names = append(names, name)
			}
		}
	}
	return names
}

// Leaf is a cluster that a cluster comes down to, as its newest config that can be used
// has it.
type Leaf struct {
	*resource.ClusterConfig

	Counters *policy.ClusterCounters // of {cluster, EDS service name}; every leaf of that has the same
	Totals   *Totals                 // of the leaf's own cluster
}

// Breaker is how full a circuit breaker is.
type Breaker struct {
	InFlight    int64  `json:"in_flight"`
	MaxRequests uint32 `json:"max_requests"`
	Open        bool   `json:"open"`
	// Share and Demand are how many requests this daemon may, and would like to, have in flight, if
	// max_requests is one limit for all daemons of the store; absent otherwise.
	Share    *int64 `json:"share,omitempty"`
	Demand   *int64 `json:"demand,omitempty"`
	Rejected uint64 `json:"-"` // picks
}

// Limit is how many requests may be in flight in this daemon: max_requests, or the share of this daemon
// if that is a limit of the fleet.
func (leaf Leaf) Limit() uint32 {
	limit := leaf.Cluster.MaxRequests
	if shared := leaf.Counters.SharedLimit(); shared != nil && leaf.Cluster.FleetLimit {
		limit = min(limit, shared.Limit())
	}
	return limit
}

// Fleet returns the share that this daemon has of the leaf's limit, if that is one of the fleet.
func (leaf Leaf) Fleet() (s policy.ShareState, ok bool) {
	if shared := leaf.Counters.SharedLimit(); shared != nil && leaf.Cluster.FleetLimit {
		return shared.State(), true
	}
	return s, false
}

// Breaker is the leaf's circuit breaker now.
func (leaf Leaf) Breaker() Breaker {
	b := &leaf.Counters.Breaker
	n := b.InFlight()
	out := Breaker{InFlight: n, MaxRequests: leaf.Cluster.MaxRequests, Open: n >= int64(leaf.Limit()), Rejected: b.Rejected()}
	if s, ok := leaf.Fleet(); ok {
		out.Share, out.Demand = &s.Share, &s.Demand
	}
	return out
}
