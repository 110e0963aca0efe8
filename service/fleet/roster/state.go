package roster

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
)

const (
	// MaxShares is how many shares of one replica a State lists.
	MaxShares = 100
	// MaxLimits is how many limits a State lists.
	MaxLimits = 1000
	// MaxDisagreements is how many disagreements a State lists.
	MaxDisagreements = 100
	// maxNamed is how many replicas a Disagreement names.
	maxNamed = 10
)

// State is the state of the fleet, as one replica knows it.
type State struct {
	// Shared is false for a daemon that shares no store with others (--store): the rest is empty then.
	Shared bool `json:"shared"`
	// Replica is the ID of the replica that responds; empty if Shared is false.
	Replica string `json:"replica,omitempty"`
	// Joined: the replica that responds has a session in the store. Without one, it admits no requests
	// of limits of the fleet, and the rest is as it was when it had one.
	Joined bool `json:"joined"`
	// SummaryAge is how long ago the summaries of other replicas were read; a Go duration. Each
	// publishes its own a few seconds after a change.
	SummaryAge string `json:"summary_age,omitempty"`
	// Error is why they could not be read since.
	Error string `json:"error,omitempty"`
	// Replicas are sorted by name.
	Replicas []ReplicaState `json:"replicas"`
	// Limits are those of clusters with limit_scope fleet, sorted by name, at most 1000.
	Limits []LimitState `json:"limits"`
	// MoreLimits is the number of limits that are not listed.
	MoreLimits int `json:"more_limits,omitempty"`
	// Disagreements are about endpoints, those of the most replicas first, at most 100.
	Disagreements []Disagreement `json:"disagreements"`
	// MoreDisagreements is the number of those that are not listed.
	MoreDisagreements int `json:"more_disagreements,omitempty"`
}

// ReplicaState is one replica.
type ReplicaState struct {
	// ID identifies the process: it is another one after a restart.
	ID string `json:"id"`
	// Name is --name; empty if it is not known any more.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Address is the URL of its API for other replicas; absent if they cannot reach it.
	Address string `json:"address,omitempty"`
	Zone    string `json:"zone,omitempty"`
	// Self is true for the replica that responds.
	Self bool `json:"self"`
	// State is live, or gone for a replica that has ended, or lost the store: its shares are kept until its
	// leases have ended.
	State string `json:"state" enums:"live,gone"`
	// Summary is what it published last; absent until it has.
	Summary *SummaryState `json:"summary,omitempty"`
	// Shares are sorted by cluster, at most 100.
	Shares []ShareState `json:"shares"`
	// MoreShares is the number of shares that are not listed.
	MoreShares int `json:"more_shares,omitempty"`
}

// SummaryState is what a replica published last.
type SummaryState struct {
	// Index is that of the last commit of the store that it has applied.
	Index uint64 `json:"index"`
	// Behind is how much greater the index of the replica that responds is; 0 if it is not.
	Behind uint64 `json:"behind"`
	// BehindSeconds is the time since the replica last knew that it has all that the store has.
	BehindSeconds float64 `json:"behind_seconds"`
	// PicksPerSecond is the rate of successful picks.
	PicksPerSecond float64 `json:"picks_per_second"`
	// Unreachable is the number of endpoints that it cannot reach, of all clusters; absent for callers
	// that may not see all of them.
	Unreachable *int `json:"unreachable,omitempty"`
}

// ShareState is the part of a limit that one replica has.
type ShareState struct {
	Cluster        string `json:"cluster"`
	EDSServiceName string `json:"eds_service_name,omitempty"`
	// Limit is the limit of the whole fleet, as the replica knows it.
	Limit int64 `json:"limit"`
	// Share is how many requests the replica may have in flight.
	Share int64 `json:"share"`
	// Demand is how many it would like to have in flight.
	Demand int64 `json:"demand"`
	// MaxTTL is the maximum ttl of its leases; a Go duration. It grows when longer ones are asked for.
	MaxTTL string `json:"max_ttl"`
	// ReturnsWithin is the time after which the share of a replica that is gone is free again; a Go
	// duration.
	ReturnsWithin string `json:"returns_within,omitempty"`
}

// LimitState is the limit of one cluster.
type LimitState struct {
	Cluster        string `json:"cluster"`
	EDSServiceName string `json:"eds_service_name,omitempty"`
	// Limit is the limit in force: the smallest that any live replica knows.
	Limit int64 `json:"limit"`
	// Shares is the sum of all shares. It is above the limit only after that was lowered, until requests
	// have ended.
	Shares int64 `json:"shares"`
	// Demand is the sum of what all live replicas would like to have in flight.
	Demand int64 `json:"demand"`
	// Free is what no replica has.
	Free int64 `json:"free"`
	// Kept is the sum of the shares of replicas that are gone.
	Kept int64 `json:"kept"`
	// Replicas is the number of replicas with a share.
	Replicas int `json:"replicas"`
}

// Disagreement is an endpoint that some replicas cannot reach, and others can.
type Disagreement struct {
	Cluster string `json:"cluster"`
	Address string `json:"address"`
	// Unreachable is how many of Replicas cannot reach it.
	Unreachable int `json:"unreachable"`
	Replicas    int `json:"replicas"`
	// From are the names of those that cannot reach it, at most 10.
	From []string `json:"from"`
	// Says describes it in a sentence.
	Says string `json:"says"`
}

// StateIn returns the state of the fleet as far as it is in a scope. A nil Roster is that of a daemon
// without a shared store.
func (r *Roster) StateIn(in *ledger.Scope) State {
	s := State{Replicas: []ReplicaState{}, Limits: []LimitState{}, Disagreements: []Disagreement{}}
	if r == nil {
		return s
	}
	s.Shared, s.Replica, s.Joined, s.Error = true, r.Self, r.Joined, fault.Text(r.Err)
	if r.Age > 0 {
		s.SummaryAge = r.Age.String()
	}
	shares := r.shares(&s, in)
	own := uint64(0)
	for _, m := range r.Members {
		if m.ID == r.Self && m.Summary != nil {
			own = m.Summary.Index
		}
	}
	for _, m := range r.Members {
		s.Replicas = append(s.Replicas, replica(m, m.ID == r.Self, own, shares[m.ID], in))
	}
	slices.SortFunc(s.Replicas, func(a, b ReplicaState) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	r.disagree(&s, in)
	return s
}

func replica(m Member, self bool, own uint64, shares []ShareState, in *ledger.Scope) ReplicaState {
	out := ReplicaState{
		ID: m.ID, Name: m.Name, Version: m.Version, Address: m.Address, Zone: m.Zone, Self: self, State: "live", Shares: []ShareState{},
	}
	if m.Gone {
		out.State = "gone"
	}
	if m.Summary != nil {
		out.Summary = &SummaryState{
			Index: m.Summary.Index, Behind: own - min(own, m.Summary.Index), BehindSeconds: m.Summary.BehindSeconds,
			PicksPerSecond: m.Summary.PicksPerSecond,
		}
		if in.All() {
			out.Summary.Unreachable = new(len(m.Summary.Failing) + m.Summary.More)
		}
	}
	n := min(len(shares), MaxShares)
	out.Shares, out.MoreShares = append(out.Shares, shares[:n]...), len(shares)-n
	return out
}

// shares sets the limits of s, and returns the shares by replica.
func (r *Roster) shares(s *State, in *ledger.Scope) map[string][]ShareState {
	by := make(map[string][]ShareState)
	for _, l := range r.Limits {
		if !in.Cluster(l.Cluster) {
			continue
		}
		state := LimitState{Cluster: l.Cluster, EDSServiceName: l.EDSServiceName, Limit: -1}
		for _, share := range l.Shares {
			one := ShareState{
				Cluster: l.Cluster, EDSServiceName: l.EDSServiceName, Limit: share.Limit, Share: share.Share, Demand: share.Demand, MaxTTL: share.Bound.String(),
			}
			state.Shares += share.Share
			if share.Gone {
				state.Kept += share.Share
				one.ReturnsWithin = share.Left.String()
			} else {
				state.Replicas++
				state.Demand += share.Demand
				if state.Limit < 0 || share.Limit < state.Limit {
					state.Limit = share.Limit
				}
			}
			by[share.Replica] = append(by[share.Replica], one)
		}
		state.Limit = max(0, state.Limit)
		state.Free = max(0, state.Limit-state.Shares)
		if len(s.Limits) == MaxLimits {
			s.MoreLimits++
			continue
		}
		s.Limits = append(s.Limits, state)
	}
	return by
}

// disagree sets the disagreements of s. What no replica can reach is no disagreement.
func (r *Roster) disagree(s *State, in *ledger.Scope) {
	from, replicas := make(map[Failing][]string), 0
	for _, m := range r.Members {
		if m.Gone || m.Summary == nil {
			continue
		}
		replicas++
		for _, f := range m.Summary.Failing {
			if in.Cluster(f.Cluster) {
				from[f] = append(from[f], cmp.Or(m.Name, m.ID))
			}
		}
	}
	for f, names := range from {
		if len(names) == replicas {
			continue
		}
		slices.Sort(names)
		s.Disagreements = append(s.Disagreements, Disagreement{
			Cluster: f.Cluster, Address: f.Address, Unreachable: len(names), Replicas: replicas, From: names[:min(len(names), maxNamed)],
			Says: fmt.Sprintf("%d of %d replicas cannot reach %s", len(names), replicas, f.Address),
		})
	}
	slices.SortFunc(s.Disagreements, func(a, b Disagreement) int {
		return cmp.Or(cmp.Compare(b.Unreachable, a.Unreachable), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Address, b.Address))
	})
	n := min(len(s.Disagreements), MaxDisagreements)
	s.Disagreements, s.MoreDisagreements = s.Disagreements[:n:n], len(s.Disagreements)-n
}
