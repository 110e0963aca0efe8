// Package lb hosts gRPC's xDS balancer pipeline: one [Channel], with a tree of
// its own, for each target.
//
//	resource.Config ─ one immutable value for each update
//	└ Channel: one owner runs the tree below; picks read an atomic picker
//	  └ cluster_manager ─ a child per cluster; the picker looks the cluster up
//	    └ cds ─ builds the child from the cluster's resources; no picker of its own
//	      └ outlier_detection ─ ejects endpoints by how held picks end; idle unless configured
//	        └ cluster_impl ─ drops, circuit breaker, load counters
//	          └ priority ─ fail-over
//	            └ weighted_target ─ weighted choice of a locality
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
// Priorities are numbered over all leaves in a row, and a leaf without priorities counts
// as one. The priority policy over the leaves reports each change of the number in use
// once, also where the change is within a leaf.
//
// ring_hash and least_request, chosen by lb_policy, take weighted_target's place and
// choose among the endpoints of all localities.
//
// Every policy embeds a base of package policy, which does what the policies have in
// common: endpoint policies [policy.Endpoints], pick_first and priority [policy.Base],
// cluster_impl and outlier_detection [policy.Wrapper], cds
// [policy.Switch], cluster_manager and weighted_target [policy.Children]. A policy's
// package has its config (the JSON of gRPC's service config), its picker, its
// description and its trace step. [Policies] lists them all; [PolicyTraits] lets the
// decoder judge the config of those that a cluster can choose.
//
// A config goes down as values: each policy gives each child the child's part.
// Connectivity comes up in batches: SubConn events are handled one by one, each
// policy that changed reports once, the deepest first, and one picker is
// published by one atomic store. A picker never changes after that.
//
// docs/concepts/walkthrough.md follows a pushed config from the HTTP request to the
// published picker, with the functions that it passes.
//
// A target's routes are published with the picker of the same config, so a route
// never names a cluster that the picker does not have. They choose the cluster of a
// pick, and its request hash, before the picker is asked. A cluster: target has no
// routes: its picks name the cluster.
//
// A pick is a [policy.Call]. It loads the current picker and goes through five
// of them (cluster_manager, cluster_impl, priority, weighted_target,
// round_robin), and through a second priority picker if the cluster is an aggregate:
// no lock, no allocation, no clock. Only a pick that has to wait for the next picker
// costs more.
//
// The endpoint's policy returns a [policy.Upstream], in which everything else about the
// endpoint is: cluster_impl checks there that it is still connected and not ejected,
// takes the address, and counts the load of its locality. The caller counts the pick
// in the Upstream's [policy.Place]. So a pick reads little memory: the pickers, which
// all picks share, one pointer of the policy's list, and one Upstream.
//
// lbd has its own policies, with the pickers of grpc's balancer API, also where gRPC has public
// ones of the same name (weighted_target, round_robin, weighted_round_robin,
// least_request, pick_first). They show what gRPC's do not: drops by category, requests
// in flight and their limit, the priority in use and why, and why a pick went where it
// went. They leave out endpoints that a pick excludes, and pick without allocations.
// Any other policy that is registered with grpc runs behind package foreign, by its
// name, as one step without details.
package lb
