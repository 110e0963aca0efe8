// Package etcd is a [store.Store] in etcd, for daemons that share what is pushed.
//
// # Keys
//
// Type layout lists the keys. One record is one entry. Every commit puts the key head, whose
// revision is the index of the commit, so that all daemons agree on it. A value of more than
// 256 KiB is a blob of several keys, and its record refers to it. Values have a version and a
// checksum: what cannot be read is reported, and the entry stays as it was.
//
// # Reading
//
// One goroutine, the follower, reads everything at one revision, and then watches: it applies
// each revision of etcd as one commit. After a compaction it reads everything again, and
// applies the difference as one commit. What did not change keeps its entry and its decoded
// value.
//
// # Commits
//
// One goroutine, the writer, runs the functions of all Updates that wait, and commits what they
// wrote in one transaction. Its conditions:
//
//   - What the functions have read is as in the snapshot: each key was not put after the last
//     revision that the follower applied, and exists or not as before. Of a type whose entries
//     they have read, none was put: each commit puts a key for each type. Beyond 50 keys, or
//     after a read of all: there was no commit since then.
//   - The key of this writer is as its last transaction left it, or does not exist before the
//     first one.
//   - No large commit is being folded, and no other writer has a turn.
//
// If a condition is false, the functions run again on a newer snapshot. After some conflicts,
// the writer takes a turn: a key with a lease, which lets other writers wait. Updates that write
// nothing, or whose function fails, have the same conditions on what they read, because their
// results would be of an outdated state otherwise.
//
// A transaction without a response, say because the connection was lost, may be committed at
// any later time. The writer therefore changes its own key: from then on, the transaction can no
// longer be committed, and whether it was is in that key. (If the key is gone by then, so is its
// lease, with which the transaction would put it: etcd rejects it.) Only if that fails, too, or if the
// lease of the key has expired, the Update fails with a [*store.UnknownOutcomeError].
//
// # Large commits
//
// etcd limits a transaction to 128 operations and 1.5 MiB. What exceeds 100 operations or 1 MiB
// is written as a blob first. One small transaction, with the conditions above, then puts the key
// pending, which refers to the blob: that is the commit. From this revision on, what is stored
// is the records with the changes of the blob over them. A follower applies the whole blob when
// it sees the key. The writer then folds it: it puts the records, some at a time, and deletes the
// blob and the key pending with the last ones. Nothing else is committed until that is done; a
// writer that finds the key of another writer does it first, so that a writer that was killed
// blocks no other one.
//
// # Garbage
//
// Blobs of writers that were killed before their commit, and of values that were replaced, are
// deleted by one daemon at a time. The name of a blob has the writer and the sequence of the
// attempt. A blob that nothing refers to is garbage if the key of its writer is gone, or has a
// later sequence: that writer cannot commit a reference to it any more.
//
// # Without etcd
//
// The contents are also in a file on this host, which is written behind the commits. A start
// without etcd uses it. A request to check that etcd responds is sent every few seconds: while it
// fails, Updates fail at once, with [store.ErrUnavailable]. The time between attempts to connect,
// and before everything is read again after a compaction, is random, so that a thousand daemons
// do not do it at once. Nothing depends on the wall clock: expiry is by etcd's leases.
package etcd
