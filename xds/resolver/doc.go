// Package resolver turns resources into one immutable [resource.Config] for each target. It
// rebuilds only the configs that depend on a changed resource (gRFC A74).
//
//	target ─ a cluster by name; or Listener → routes → the virtual host that matches
//	└ root ─ a cluster that picks of the target can choose
//	  └ part ─ the Cluster with its assignment, or the addresses of the DNS name;
//	           one for each leaf of an AGGREGATE
//
// The first source that has a resource is used: push, file, management server, cache. A
// Cluster that is rejected in a file is an error if no other source has one; the cluster
// does not get the defaults, which may lack the TLS of that Cluster. Resources of management
// servers, and so roots and parts, are separate for each target: while a server is
// unreachable, a target that lacks a resource may use another one, with other resources of
// the same names (gRFC A71). Equal values are the same pointer for all targets.
//
// Targets and roots record what they need. So the resolver finds what a change affects, and
// which resources to request from a management server for which target: those that it
// needs and that neither a push nor a file has.
//
// The first config of a target, and one with a new resource, waits until all resources are
// known; the last config stays in use, with the changes that people make meanwhile. An error
// of a cluster affects this cluster; an error of the Listener or the routes affects the target.
package resolver
