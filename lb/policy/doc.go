// Package policy is the room that all load balancing policies share.
//
// A policy is a grpc [balancer.Builder]. It receives typed configs ([Child] and
// the Config structs), builds its children from a [Registry], and talks to its
// parent through a [Conn]: SubConns, timers, events and state go up through it.
// A pick comes down as a [Call], which is the context of its
// [balancer.PickInfo].
//
// One owner, the [Serializer], runs every call into the policies of a tree.
// Policies therefore hold no mutex and start no goroutine. What they change
// during a batch of work they mark ([Conn.Mark]); at its end each marked policy
// reports once, the deepest first, so that a thousand connections coming up
// together make one picker.
package policy
