// Package client follows management servers: an ADS client, state of the world, v3,
// that behaves as gRPC's xDS clients do (gRFCs A27, A47, A53, A57, A71).
//
// [Client.Want] sets which resources a target wants; [Options.OnUpdate] reports what
// became of each: a value, or why there is none, or why there is no newer one.
//
// # Who owns what
//
//	Want, Status, timers                      OnUpdate
//	       │ posted                               ▲
//	       ▼               batches of Updates     │
//	┌─ owner ────────────┐            ┌─ delivery, one per authority ─┐
//	│ authorities        │            │ of the bootstrap: calls       │
//	│  └ watches (cache) ├───────────►│ OnUpdate, and releases the    │
//	│ servers            │            │ receipt                       │
//	│  ├ resources       │            └─────────────┬─────────────────┘
//	│  └ subscriptions   │                          │ receipt
//	└─▲──────────────┬───┘                          ▼
//	  │ decoded      │ one request    ┌─ runner, one per server ──────┐
//	  │ responses,   │ at a time      │ connects, opens a stream,     │
//	  │ ends of      ▼                │ receives, decodes, waits for  │
//	  │ streams    sender, one per    │ the receipt; backs off        │
//	  │            stream             └─────────────┬─────────────────┘
//	  └─────────────────────────────────────────────┘
//
// One goroutine, the owner, has all state: no field of an authority, a watch, a
// server or a subscription is touched by another, and none has a lock. It never
// waits: its work comes as functions in a mailbox, and what takes time is done by
// others. No goroutine belongs to a target.
//
//   - The runner of a server has its connection and its stream. It decodes a
//     response before the owner sees it, and receives the next one when the updates
//     of the last were taken: that is the flow control. A server that floods is held
//     back by HTTP/2, and memory holds one response of each server.
//   - The sender of a stream sends one request at a time. The owner makes the next
//     one when the last was sent, of what is subscribed then: a thousand changes
//     while a server reads slowly make one request, and none is lost.
//   - The delivery of an authority of the bootstrap calls OnUpdate, for all targets. If
//     that is stuck, the servers of the authority wait, and no other.
//
// # Targets
//
// gRFC A71 requires one XdsClient for each data plane target, so that a target that
// lacks a resource falls back alone. Here that is an authority: it exists for each
// target and each authority of the bootstrap, with its own watches, cached values and
// servers in use. What happens to one authority never changes another.
//
// What authorities share is the connection. A server has one stream, which asks for
// the union of what the authorities that use it want. A serverResource is what the
// server said last of one of these names. It is decoded, compared and counted once,
// its value is the same pointer for all, and it is handed at once to a watch that
// comes later: the server does not send a resource again on the same stream.
//
// # Which server
//
// An authority uses the first server of its list, and the next one only while the one
// before cannot be reached and one of its own resources is neither cached nor known
// not to exist. It then subscribes to all its resources there; values that differ
// replace those of the first server.
//
//   - A fallback server that does not have a resource, or does not answer, takes
//     nothing away that a more preferred server provided: that value stays, with an
//     ambient error, even if the fallback server has fail_on_data_errors (gRFC A88).
//   - An authority returns to a preferred server when that sends a usable resource
//     that the authority wants, or withdraws one that it had sent; not when it answers
//     other targets, rejects, or lets its time pass. The servers after it are released.
//   - What the preferred server had sent on an earlier stream, and need not send again,
//     counts again when it has not sent anything else within 15 s of its first answer on
//     the new stream.
//
// The decisions are made by methods of the owner that take no time and start nothing:
// Client.want, server.opened, receive, expireAll and ended. Tests drive them without
// goroutines and timers: see newClient, Client.start and Client.after.
package client
