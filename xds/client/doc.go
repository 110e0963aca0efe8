// Package client follows management servers. It is an ADS client (xDS v3, state of the
// world) that behaves as gRPC's xDS clients do (gRFCs A27, A47, A53, A57, A71, A88).
//
// [Client.Want] sets which resources a target wants. [Options.OnUpdate] receives each
// change: a value, or an error, with or without a cached value.
//
// # Ownership
//
// One goroutine, the owner, has all state: nothing else accesses the fields of an
// authority, a watcher, a channel or a subscription, except atomic ones. The owner never
// blocks: it takes functions from a queue. Each layer uses those below it, and calls a
// layer above through an interface that the lower one declares:
//
//	Client           Want, Status; has the owner and the layers below
//	authority        one for each target and authority of the bootstrap: watchers with
//	                 their cached values, servers in use, fallback
//	xdsChannel       one for each server in use: timeouts; a resourceState for each
//	                 requested resource, which all targets share
//	subscriptions    the protocol for one resource type on one stream; pure
//	transport        connection, stream, back-off, decoding; in goroutines of its own
//
// Three kinds of goroutines work for the owner, none of them for a single target:
//
//   - The transport of a server decodes a response before the owner gets it. It receives
//     the next one when OnUpdate has returned for the updates of the last: that is the
//     flow control. HTTP/2 slows down a server that sends faster.
//     If there is no memory for a response, it is rejected, and decoded again each second,
//     until there is or the server sends another one of its type.
//   - The sender of a stream sends one request at a time. The owner makes the next one of
//     all current subscriptions when the last was sent: many changes while a server reads
//     slowly make one request.
//   - The updateQueue of an authority of the bootstrap calls OnUpdate, for all targets. If
//     OnUpdate blocks, only the servers of this authority wait.
//
// # Targets
//
// gRFC A71 requires one XdsClient for each data plane target, so that a target that lacks
// a resource falls back alone. Here that is an authority. Authorities share the channel
// of a server, whose stream requests the union of their resources, and the resourceStates.
//
// # Which server
//
// An authority uses the first server of its list. It uses the next one as well while the
// one before is unreachable and a resource of the authority is neither cached nor known not
// to exist. It requests all its resources there, and replaces values that differ.
//
//   - A fallback server that does not have a resource, or does not respond, withdraws
//     nothing that a more preferred server provided: the value stays, with an ambient
//     error, even if the fallback server has fail_on_data_errors (gRFC A88).
//   - An authority returns to a preferred server when that sends a usable resource that
//     the authority wants, or withdraws one; not when it answers other targets, rejects
//     a resource, or times out. The servers after it are released.
//   - What the preferred server sent on an earlier stream, and need not send again, counts
//     if the server has not replaced it within 15 s of its first response on the new stream.
//
// Tests drive the owner's methods without goroutines and timers: see newClient,
// channelPool.start and channelEnv.after.
package client
