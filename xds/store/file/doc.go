// Package file is a [store.Store] in a file of one daemon.
//
// All values are in memory, in an immutable [store.Snapshot] that readers take without a lock.
// One goroutine writes the file: the Updates that wait for it are one commit with one fsync.
//
// The file, DIR/lbd.db, is a log of commits with their indices. It is compacted when more than
// half of it is outdated, or when it has many patches. The checksum of a record continues that of the record before it.
// [Open] cuts off an unfinished commit, which was never acknowledged. Any other difference is
// damage: Open moves the file away, and writes the contents before the damage to another file.
package file
