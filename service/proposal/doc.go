// Package proposal says what a change of resources would do, and what it would take away.
//
// Everything that changes resources is a [resolver.Proposal]: a push, a snapshot, a restore, an overlay, an
// expiry, a change of resource files. [Evaluate] returns its [Outcome]: each cluster that it touches, before and
// after. A [Guard] finds the losses in that: clusters without usable endpoints, connections without TLS. Who
// makes the change decides which losses it permits: a push is rejected, and the caller can repeat it with
// allow_empty; a change of files is held, and [Files] keeps the last good versions in use until the operator
// permits exactly this change. [Check] is for "lbd check", without a daemon.
//
// What management servers and DNS change is not guarded: gRPC's rules decide there. What they have counts for the
// changes of others.
//
// The package does no I/O, starts no goroutine and reads no clock.
package proposal
