// Package resolver turns resources into what trees are built from: one immutable
// [resource.Config] for each target, made anew only where something that the
// target needs has changed (gRFC A74).
//
//	target ─ a cluster by name; or Listener → routes → the virtual host that fits
//	└ root ─ a cluster that picks can choose, the same for all targets
//	  └ part ─ the Cluster with its assignment, or the DNS name's addresses;
//	           of an AGGREGATE one for each leaf
//
// Of each resource the first source that has it counts: what was pushed, a file,
// a management server, what was kept of one. Targets and roots note what they
// need, so that a change is followed to those that it concerns, and so that it is
// known what a management server is to be asked for: what somebody needs and
// neither push nor file have.
//
// A target's first config, and one with something new in it, waits until all of
// it is known; what there was stays in use meanwhile. What is wrong with one
// cluster is that cluster's; what is wrong with the Listener or the routes is the
// target's.
package resolver
