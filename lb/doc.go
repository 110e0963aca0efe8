// Package lb hosts gRPC's xDS balancer pipeline: one [Channel], with a tree of
// its own, for each target.
//
//	resource.Config ─ one immutable value for each update
//	└ Channel: one owner runs the tree below; picks read an atomic picker
//	  └ cluster_manager ─ a child per cluster; the picker looks the cluster up
//	    └ cds ─ builds the child from the cluster's resources; no picker of its own
//	      └ outlier_detection ─ ejects by how held picks end, where configured
//	        └ cluster_impl ─ drops, circuit breaker, load counters
//	          └ priority ─ fail-over
//	            └ wrr_locality → weighted_target ─ weighted choice of a locality
//	              └ round_robin, or another endpoint policy ─ the choice of an endpoint
//	                └ SubConn ─ one endpoint's connectivity, behind a Connector
//
// An aggregate cluster has a priority policy over its leaves right below cds. Nested
// aggregates are flattened into one list, and a leaf is a whole cds subtree with the
// policies of its own cluster (gRFC A75). A leaf that does not exist or is in error
// is skipped (gRFC A74):
//
//	cds ─ of the aggregate, whose own load balancing policy is ignored
//	└ priority ─ fail-over between leaves
//	  └ cds ─ of a leaf; its outlier_detection, cluster_impl and priority as above
//
// Priorities are numbered over all leaves in a row, a leaf without any counting as
// one. The priority policy over the leaves reports each change of the number in use
// once, also where the change is within a leaf.
//
// ring_hash and least_request, chosen by lb_policy, take wrr_locality's place and
// choose among the endpoints of all localities.
//
// A config goes down as values: each policy hands its child the child's part.
// Connectivity comes up in batches: SubConn events are handled one by one, each
// policy that changed reports once, the deepest first, and one picker is
// published by one atomic store. A picker is a photograph and is never edited.
//
// A target's routes are published with the picker of the config that they are of:
// a route names no cluster that the picker does not have. They choose the cluster
// of a pick, and its request hash, before the picker is asked; a cluster: target
// has none, and its picks name the cluster.
//
// A pick is a [policy.Call]. It loads the current picker and goes through five
// of them (cluster_manager, cluster_impl, priority, weighted_target,
// round_robin), of an aggregate through a second priority picker: no lock, no
// allocation, no clock. Only one that has to wait for the next picker pays more.
//
// The policies of the tree are lbd's own, on grpc's public balancer API, where
// gRPC has public ones of the same name as well (weighted_target, round_robin,
// weighted_round_robin, least_request, pick_first). lbd exists to show what those
// keep to themselves (drops by category, requests in flight against their limit,
// the priority in use and why, why a pick went where it went), to leave out
// endpoints that a pick excludes, and to pick without an allocation; none of it can
// be had around them. Any other policy that is registered with grpc runs behind
// package foreign, by its name, as one step that nobody can look into.
package lb
