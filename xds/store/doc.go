// Package store keeps pushed resources on disk. Values are opaque bytes by key.
//
// All values are in memory, in an immutable [Snapshot] that readers take without a lock. One
// goroutine writes the file: the Updates that wait for it are one transaction with one fsync.
//
// The file, DIR/lbd.db, is a log of transactions. It is compacted when more than half of it
// is outdated. The checksum of a record continues that of the record before it. [Open] cuts
// off an unfinished transaction, which was never acknowledged. Any other difference is damage:
// Open moves the file away, and writes the contents before the damage to another file. Open
// also migrates the bbolt files of earlier versions, and keeps them as DIR/lbd.db.migrated.
package store
