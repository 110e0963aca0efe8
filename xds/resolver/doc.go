// Package resolver turns resources into what trees are built from: one immutable
// [resource.Config] for each target, made anew only where something that the
// target needs has changed (gRFC A74).
//
//	target ─ a cluster by name; or Listener → routes → the virtual host that fits
//	└ root ─ a cluster that picks of the target can choose
//	  └ part ─ the Cluster with its assignment, or the DNS name's addresses;
//	           of an AGGREGATE one for each leaf
//
// Of each resource the first source that has it counts: what was pushed, a file,
// a management server, what was kept of one. A Cluster that is rejected in a file is an
// error where no other source has one: its cluster does not get the defaults, which may
// be without the TLS that the Cluster asks for. A management server speaks to one target
// at a time: while it cannot be reached, a target that lacks something may use another
// server, with other resources under the same names (gRFC A71). So what it says is
// held for each target, and so are roots and parts; the other sources are the same for
// all. Equal values are one pointer, for whichever target.
//
// Targets and roots note what they need, so that a change is followed to those that it
// concerns, and so that it is known what a management server is to be asked for, and
// for which target: what it needs and neither push nor file have.
//
// A target's first config, and one with something new in it, waits until all of
// it is known; what there was stays in use meanwhile. What is wrong with one
// cluster is that cluster's; what is wrong with the Listener or the routes is the
// target's.
package resolver
