// Package store keeps the resources that were pushed to lbd, so that they
// outlive the process.
//
// It holds opaque bytes by key and knows nothing of what they mean. All of it is
// in memory, as an immutable [Snapshot] that readers take without a lock; the
// file is read once, by [Open], and written by one goroutine. What waits for that
// goroutine when it comes round goes to disk in one transaction with one fsync,
// so the order of commits is the order in which everybody sees them.
//
// A bbolt file, DIR/lbd.db, holds them. bbolt checks neither its data pages nor
// its free list, so Open does: the layout of every page, a checksum over each key
// and value, and a count and sum over all of them. A file that is not exactly as
// it was written is set aside, never read in part.
package store
