package forecast

import (
	"fmt"
	"slices"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/proposal"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Effect is what a change would do to the picks of this daemon.
type Effect struct {
	// Targets are the xds targets that the change affects, by name, at most 100; MoreTargets are not listed.
	Targets     []string `json:"targets"`
	MoreTargets int      `json:"more_targets"`
	// Clusters are the clusters whose picks change, those that move most of their picks first, at most
	// 100; MoreClusters are not listed.
	Clusters     []ClusterEffect `json:"clusters"`
	MoreClusters int             `json:"more_clusters"`
	// Unpredicted says in sentences what cannot be predicted.
	Unpredicted []string `json:"unpredicted"`

	about []string // the target of each sentence of Unpredicted; empty for none
	// unknown counts what may move picks by an amount that is not known: clusters beyond the limits of a
	// forecast, and targets that wait for resources, or whose routes change.
	unknown int
}

// ClusterEffect is what a change would do to the picks of one cluster.
type ClusterEffect struct {
	Cluster string `json:"cluster"`
	Change  string `json:"change" enums:"added,removed,modified"`
	// PicksPerSecond are those of the last RateOver, with any result; absent if that is not known.
	PicksPerSecond *float64       `json:"picks_per_second,omitempty" example:"250"`
	RateOver       string         `json:"rate_over,omitempty" example:"5m0s"`
	Before         ClusterOutcome `json:"before"`
	After          ClusterOutcome `json:"after"`
	// Shift is the part of the cluster's picks that get another endpoint, or are dropped, or no longer
	// dropped: 0 to 1; absent if it cannot be predicted.
	Shift *float64 `json:"shift,omitempty" example:"0.25"`
	// MovedHashKeys is the part of all request hashes that get another endpoint, 0 to 1; absent unless
	// the policy is ring_hash before and after.
	MovedHashKeys *float64 `json:"moved_hash_keys,omitempty"`
	// Endpoints are those before and after, the largest difference of shares first, at most 100;
	// MoreEndpoints are not listed.
	Endpoints     []EndpointEffect `json:"endpoints"`
	MoreEndpoints int              `json:"more_endpoints"`
	// Opened and Closed are how many connections lbd would open, and close at once.
	Opened int `json:"connections_opened"`
	Closed int `json:"connections_closed"`
	// Assumed is how many endpoints with picks after the change are assumed to be reachable: lbd is not
	// connected to them now.
	Assumed int `json:"assumed_reachable"`
	// Limits says in sentences which limits would be exceeded.
	Limits []string `json:"limits"`
	// Unpredicted says in sentences what cannot be predicted.
	Unpredicted []string `json:"unpredicted"`

	parts []string // the names of its leaves and assignments
}

// ClusterOutcome is a cluster before or after a change.
type ClusterOutcome struct {
	// Priority is the priority in use; -1 if none is.
	Priority int `json:"priority_in_use"`
	// Dropped is the part of all picks that are dropped, 0 to 1.
	Dropped float64 `json:"dropped"`
	// MaxRequests is the limit of the circuit breaker; absent for an AGGREGATE and without the cluster.
	MaxRequests *uint32 `json:"max_requests,omitempty"`
	// Error is why no pick gets an endpoint.
	Error string `json:"error,omitempty"`
}

// EndpointEffect is one endpoint before and after a change.
type EndpointEffect struct {
	Address  string           `json:"address"`
	Locality observe.Locality `json:"locality"`
	// Priority is that after the change; of a removed endpoint, the one before.
	Priority int    `json:"priority"`
	Change   string `json:"change,omitempty" enums:"added,removed"`
	// Before and After are shares of the picks that are not dropped, 0 to 1; absent if the policy does not
	// know them.
	Before *float64 `json:"share_before,omitempty"`
	After  *float64 `json:"share_after,omitempty"`
	// RateBefore and RateAfter are requests per second: the picks of the last minutes times the shares,
	// without dropped ones.
	RateBefore *float64 `json:"requests_per_second_before,omitempty"`
	RateAfter  *float64 `json:"requests_per_second_after,omitempty"`
}

// The limits of a forecast.
const (
	// MaxListed is the maximum number of clusters, of targets, and of endpoints of a cluster that an
	// Effect lists.
	MaxListed = 100
	// MaxTargets is the maximum number of targets that a forecast considers.
	MaxTargets = 1000
	// MaxEndpoints is the number of endpoints after which a forecast leaves out the other clusters.
	MaxEndpoints = 200_000
)

// bytesPerEndpoint is about what the tree of a rehearsal takes for an endpoint, in both configs.
const bytesPerEndpoint = 1024

// Cost returns about how many bytes a forecast needs at once, for the budget of bulk work.
func Cost(o *proposal.Outcome) int {
	n := 0
	previews, _ := changed(o)
	for i := range previews {
		for _, config := range []*resource.Config{previews[i].Before, previews[i].After} {
			for _, name := range previews[i].Clusters {
				if configOf(config, name) == nil {
					continue
				}
				for _, cc := range config.Leaves(name) {
					n += cc.Assignment.Usable()
				}
			}
		}
	}
	return min(n, MaxEndpoints) * bytesPerEndpoint
}

// Shift returns the largest shift of a cluster, and its name. ok is false if that of a cluster with picks
// is not known: then cluster is its name, or empty if it may be any.
func (e *Effect) Shift() (shift float64, cluster string, ok bool) {
	if e.unknown > 0 {
		return 0, "", false
	}
	for i := range e.Clusters {
		c := &e.Clusters[i]
		switch {
		case c.Change == added:
		case c.Shift == nil:
			return 0, c.Cluster, false
		case *c.Shift > shift:
			shift, cluster = *c.Shift, c.Cluster
		}
	}
	return shift, cluster, true
}

// Within returns the effect on what a scope has.
func (e *Effect) Within(s *ledger.Scope) *Effect {
	if e == nil || s.All() {
		return e
	}
	out := *e
	out.Targets = s.Targets(e.Targets)
	out.Clusters = slices.DeleteFunc(slices.Clone(e.Clusters), func(c ClusterEffect) bool { return !s.Cluster(c.Cluster) })
	for i := range out.Clusters {
		c := &out.Clusters[i]
		if slices.ContainsFunc(c.parts, func(name string) bool { return !s.Cluster(name) }) { // others have made it of them
			c.Endpoints, c.MoreEndpoints, c.Limits, c.Unpredicted = []EndpointEffect{}, 0, []string{}, []string{}
			c.Before.Error, c.After.Error = "", ""
		}
	}
	out.MoreTargets, out.MoreClusters = 0, 0
	out.Unpredicted = []string{}
	for i, sentence := range e.Unpredicted {
		if e.about[i] != "" && s.Target(e.about[i]) {
			out.Unpredicted = append(out.Unpredicted, sentence)
		}
	}
	return &out
}

// say adds a sentence about a target, or about the change if the target is empty.
func (e *Effect) say(target, format string, args ...any) {
	if len(e.Unpredicted) < MaxListed {
		e.Unpredicted, e.about = append(e.Unpredicted, fmt.Sprintf(format, args...)), append(e.about, target)
	}
}

// trim leaves out what is beyond MaxListed.
func (e *Effect) trim() {
	if more := len(e.Targets) - MaxListed; more > 0 {
		e.Targets, e.MoreTargets = e.Targets[:MaxListed], e.MoreTargets+more
	}
	for i := range e.Clusters {
		c := &e.Clusters[i]
		if more := len(c.Endpoints) - MaxListed; more > 0 {
			c.Endpoints, c.MoreEndpoints = slices.Clone(c.Endpoints[:MaxListed]), more
		}
	}
}
