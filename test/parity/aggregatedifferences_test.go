package parity_test

import (
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	pickfirstv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/pick_first/v3"
)

// aggregateDifferences are those of aggregates and of deleted clusters.
var aggregateDifferences = []difference{
	byDuel("a cluster that is deleted",
		"has 1 connections", "has 0 connections", func(d *duel) func() string {
			d.leaves[0].localities = d.leaves[0].localities[:1]
			d.serveUntil(d.asks, "u0")
			d.deleted["a"] = true
			d.serveUntil(d.asks, string(noCluster))
			return func() string { return d.open(0) }
		}, dropsDeleted),
	byDuel("an aggregate of which a leaf cannot be used",
		string(noCluster), "u0", func(d *duel) func() string {
			d.deleteFirstLeaf()
			return d.asks
		}, dropsDeleted),
	byDuel("the leaves of an aggregate after one that cannot be used",
		"asks for [aggregate b]", "asks for [a aggregate b]", func(d *duel) func() string {
			d.deleteFirstLeaf()
			return d.asked
		}, dropsDeleted),
	byDuel("the load balancing policy of an aggregate",
		"u0", "u0, u1", func(d *duel) func() string {
			d.net.all[1].want = true
			d.aggregate("a").asked = &clusterv3.Cluster{LoadBalancingPolicy: listed(&pickfirstv3.PickFirst{})}
			d.serve()
			return d.asks
		}),
	byDuel("an aggregate whose last leaf has no assignment, and whose other leaves have failed",
		string(none), string(refused), func(d *duel) func() string {
			d.leaves[0].localities = d.leaves[0].localities[:1]
			d.net.all[0].want = false
			d.addCluster("b", 1)
			d.leaves[1].flaw = missingPriority(0)
			d.aggregate("a", "b")
			d.serve()
			return d.asks
		}),
	byDuel("a leaf that an aggregate no longer uses, and whose priority in use fails",
		"has 0 connections", "has 1 connections", func(d *duel) func() string {
			d.leaves[0].localities = d.leaves[0].localities[:1]
			d.net.all[0].want = false
			d.addCluster("b", 2)
			d.leaves[1].localities[1].priority = 1
			d.net.all[2].want, d.net.all[3].want = true, true
			d.aggregate("a", "b")
			d.serveUntil(d.asks, "u2")
			d.net.all[0].want = true
			d.serveUntil(d.asks, "u0")
			d.net.all[2].want = false
			d.serve()
			return func() string { return d.open(3) }
		}),
}

// dropsDeleted makes both sides drop deleted resources.
func dropsDeleted(d *duel) { d.feature = "fail_on_data_errors" }

// aggregate routes all requests to an aggregate of some clusters.
func (d *duel) aggregate(of ...string) *aggregate {
	a := &aggregateOf{aggregate: &aggregate{name: "aggregate", policy: lbPolicies[0], asked: emptyCluster}}
	for _, name := range of {
		for _, w := range d.leaves {
			if w.cluster == name {
				a.of = append(a.of, w)
			}
		}
	}
	d.aggregates = []*aggregateOf{a}
	d.hosts = []virtualHost{{name: "all", domains: []string{"*"}, routes: []*route{leadsTo("aggregate")}}}
	return a.aggregate
}

// deleteFirstLeaf serves an aggregate of "b", which has one endpoint, and "a", and then
// deletes "b".
func (d *duel) deleteFirstLeaf() {
	d.t.Helper()
	d.leaves[0].localities = d.leaves[0].localities[:1]
	d.addCluster("b", 1)
	d.net.all[2].want = true
	d.aggregate("b", "a")
	d.serveUntil(d.asks, "u2")
	d.deleted["b"] = true
	d.serve()
}
