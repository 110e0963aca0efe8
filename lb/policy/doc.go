// Package policy is what all load balancing policies share.
//
// A [Policy] is built by a [Builder]. It gets its
// config and its endpoints from its parent ([Child]), and talks to its parent through
// a [Conn]: SubConns, timers, events and state go up through it. A pick comes down as
// a [Call], which is the context of its balancer.PickInfo.
//
// A policy embeds the base that fits it:
//
//   - [Endpoints], of a policy that chooses an endpoint. It keeps a SubConn for each
//     endpoint, and reports their aggregate state. The policy adds its picker of [Seats]
//     and its config, which a [ConfigReader] reads.
//   - [Wrapper], of a policy with one child, whose state it sends with another picker.
//   - [Children], of a policy with a child for each key of its config.
//   - [Base], of any other policy that has a picker of its own.
//
// A picker returns an [Upstream] as the SubConn of its result. Each endpoint has one, in
// one cache line or two, with all that a pick needs of the endpoint: the policies above
// add nothing to it, and wrap no SubConn.
//
// A [Switch] runs each child, and changes its policy gracefully.
//
// One owner, the [Serializer], makes all calls into the policies of a tree, so
// policies hold no mutex and start no goroutine. A policy whose state changes during a
// batch of calls marks itself ([Base.Mark]). At the end of the batch each marked policy
// reports once, the deepest first: a thousand connections that become READY together
// make one picker.
package policy
