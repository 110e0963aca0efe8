// Package store keeps the resources that were pushed to lbd, so that they
// outlive the process.
//
// It holds opaque bytes by key and does not interpret them. All of it is in memory, as
// an immutable [Snapshot] that readers take without a lock; the file is read once, by
// [Open], and written by one goroutine. What waits for that goroutine when it is free
// goes to disk in one transaction with one fsync, so the order of commits is the order
// in which all readers see them.
//
// The file, DIR/lbd.db, is a log: each transaction is appended, and the file is
// written again when more than half of it is out of date. Each record has a checksum
// that continues the one before it. Open cuts off a transaction that was not written
// to the end, which was never acknowledged. Any other difference from what was written
// is damage: the file is set aside, never read in part, and what was stored before the
// damaged part is written to a file of its own.
//
// A bbolt file, which earlier versions wrote, is migrated by Open and kept as
// DIR/lbd.db.migrated.
package store
