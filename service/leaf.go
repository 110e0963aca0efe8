package service

import (
	"sync/atomic"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/bootstrap"
	"github.com/lbd-dev/lbd/xds/resource"
)

// leafCounters are the counters of one {cluster, EDS service name}. Every member
// that comes down to it holds the same.
type leafCounters struct {
	*policy.ClusterCounters

	// Fixed after build.
	service policy.ServiceKey
	shared  *shared // the cluster's

	// Guarded by the targets' mu.

	holders int
	wanted  int // how many of the holders' leaves want load reports
	// reported is the management server that gets the load, or nil.
	reported *bootstrap.Server

	full atomic.Bool // the circuit breaker, until it has eased
}

// leaf is a cluster that a member comes down to, as its newest config that can
// be used has it.
type leaf struct {
	*resource.ClusterConfig

	counters *leafCounters
	reports  bool // its load is wanted by the server that it is from
}

// newLeaf returns the leaf of a cluster, which has to be released. It is called under
// ts.mu.
func (ts *targets) newLeaf(cc *resource.ClusterConfig) leaf {
	l := leaf{cc, ts.hold(cc), wantsReports(cc)}
	if l.reports {
		l.counters.wanted++
	}
	return l
}

// hold returns the counters of a cluster, for a member to hold. It is called
// under ts.mu.
func (ts *targets) hold(cc *resource.ClusterConfig) *leafCounters {
	service := policy.ServiceKey{Cluster: cc.Cluster.Name, EDSServiceName: cc.Cluster.EDSServiceName}
	c := ts.counted[service]
	if c == nil {
		c = &leafCounters{ClusterCounters: ts.counters.Acquire(service), service: service, shared: ts.share(service.Cluster)}
		ts.counted[service] = c
	}
	c.holders++
	return c
}

// release gives back the leaves, and ends the load reports that no other leaf wants. It
// is called under ts.mu.
func (ts *targets) release(leaves []leaf) {
	for _, l := range leaves {
		if l.reports {
			if l.counters.wanted--; l.counters.wanted == 0 {
				ts.reports.end(l.counters)
			}
		}
		if l.counters.holders--; l.counters.holders == 0 {
			delete(ts.counted, l.counters.service)
			l.counters.Release()
			ts.unshare(l.counters.shared)
		}
	}
}

// breaker is the leaf's circuit breaker now.
func (l leaf) breaker() BreakerState {
	b := BreakerState{MaxRequests: l.Cluster.MaxRequests, LimitFrom: "default"}
	if l.Cluster.MaxRequestsConfigured {
		b.LimitFrom = "config"
	}
	b.InFlight, b.Rejected = l.counters.Breaker.InFlight(), l.counters.Breaker.Rejected()
	b.Open = b.InFlight >= int64(b.MaxRequests)
	return b
}

// drops are the leaf's drop categories, in order.
func (l leaf) drops() []DropState {
	if l.Assignment == nil {
		return []DropState{}
	}
	out := make([]DropState, len(l.Assignment.Drops))
	counts := l.counters.Drops()
	for i, d := range l.Assignment.Drops {
		out[i] = DropState{Category: d.Category, PerMillion: d.PerMillion, Dropped: counts[d.Category]}
	}
	return out
}
