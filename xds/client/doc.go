// Package client follows management servers: an ADS client, state of the world, v3,
// that behaves as gRPC's xDS clients do (gRFCs A27, A47, A53, A57, A71).
//
// [Client.Want] says which resources are wanted, [Options.OnUpdate] is told what
// became of each: a value, or why there is none, or why there is no newer one.
// There is one subscription for each resource, whoever wants it.
//
// # Who owns what
//
//	Want, Status, timers                      OnUpdate
//	       │ posted                               ▲
//	       ▼               batches of Updates     │
//	┌─ owner ────────────┐              ┌─ delivery, one an authority ─┐
//	│ authorities        ├─────────────►│ calls OnUpdate, and signs    │
//	│  └ watches (cache) │              │ the receipt                  │
//	│ servers            │              └─────────────┬────────────────┘
//	│  └ subscriptions   │                            │ receipt
//	└─▲──────────────┬───┘                            ▼
//	  │ decoded      │ one request      ┌─ runner, one a server ───────┐
//	  │ responses,   │ at a time        │ connects, opens a stream,    │
//	  │ ends of      ▼                  │ receives, decodes, waits for │
//	  │ streams    sender, one a stream │ the receipt; backs off       │
//	  │                                 └─────────────┬────────────────┘
//	  └───────────────────────────────────────────────┘
//
// One goroutine, the owner, has all state: no field of an authority, a watch, a
// server or a subscription is touched by another, and none has a lock. It never
// waits: what it is to do comes to it as functions in a mailbox, and what takes
// time is done by others.
//
//   - The runner of a server has its connection and its stream. It decodes a
//     response before the owner sees it, and receives the next when the updates of
//     the last were taken: that is the flow control. A server that floods is held
//     back by HTTP/2, and memory holds one response of each server.
//   - The sender of a stream sends one request at a time. The owner makes the next
//     one when the last was sent, of what is subscribed then: a thousand changes
//     while a server reads slowly make one request, and none is lost.
//   - The delivery of an authority calls OnUpdate. If that is stuck, the servers of
//     the authority wait, and nobody else does.
//
// # Which server
//
// Each authority has a list of servers. It uses the first, and the next ones only
// while the one before cannot be reached and something that is wanted is not
// cached (gRFC A71). The first of them that answers again is returned to, and those
// after it are let go. A server that several authorities use has one connection and
// one stream.
package client
