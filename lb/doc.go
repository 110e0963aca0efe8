// Package lb hosts gRPC's xDS balancer pipeline: one [Channel], with a tree of
// its own, for each target.
//
//	resource.Config ─ one immutable value for each update
//	└ Channel: one owner runs the tree below; picks read an atomic picker
//	  └ cluster_manager ─ a child per cluster; the picker looks the cluster up
//	    └ cds ─ builds the child from the cluster's resources; no picker of its own
//	      └ cluster_impl ─ drops, circuit breaker, load counters
//	        └ priority ─ fail-over
//	          └ wrr_locality → weighted_target ─ weighted choice of a locality
//	            └ round_robin ─ the READY endpoints take turns
//	              └ SubConn ─ one endpoint's connectivity, behind a Connector
//
// A config goes down as values: each policy hands its child the child's part.
// Connectivity comes up in batches: SubConn events are handled one by one, each
// policy that changed reports once, the deepest first, and one picker is
// published by one atomic store. A picker is a photograph and is never edited.
//
// A pick is a [policy.Call]. It loads the current picker and goes through five
// of them (cluster_manager, cluster_impl, priority, weighted_target,
// round_robin): no lock, no allocation, no clock. Only one that has to wait for
// the next picker pays more.
//
// All policies are lbd's own, on grpc's public balancer API: gRPC's own hide
// what lbd exists to show, which is drops by category, the requests in flight
// against their limit, the priority in use and the reason for it, and why a pick
// went where it went.
package lb
