// Package share divides one limit among the replicas of a fleet: it is the state machine of
// one replica, without I/O, goroutines or a clock.
//
// The replicas share a [Record], which a store with compare-and-swap keeps (etcd), its entries one by one. It has an
// [Entry] for each process: how many requests the process may hold, and for how long. The rules
// keep the sum of what all processes hold within the limit, whatever is slow, cut off, paused
// or killed:
//
//   - Only a process changes its own share. It grows only from what is free in the record, and
//     admits more only after it knows that the record has the larger share.
//   - It shrinks by admitting less first. Then it reads how many requests are in flight, and
//     publishes no less than that.
//   - An update whose result is unknown counts as the worse of both results until a newer
//     record is seen. An update names the record that it replaces, so a newer one decides it.
//   - It admits only before its deadline, which is before the store can end its session, and
//     only if the record has its share with this session.
//   - Others remove the share of a process after they have seen that its session has ended, and
//     after the bound of the ttl of its leases has passed since. No lease is longer than the
//     bound in the record.
//
// The limit in force is the smallest that any live process has: a lower limit applies as soon
// as one process has it, a higher one when all have it.
//
// Shares follow demand by max-min fairness: each process computes the same targets from the
// record. A process that is above its target shrinks if another one lacks requests; one
// that is below grows into what is free. Nothing is written while shares and demand stay.
package share
