// Package store defines what keeps pushed resources: values that are opaque bytes, by key.
//
// [Store] is the interface. Package file keeps them in a file of one daemon, package etcd in
// an etcd cluster that daemons share. Both pass the tests of package storetest. This package
// has what they share: a [Snapshot] is an immutable version that readers take without a lock,
// a [Tx] reads one and collects writes, a [Batch] runs the functions of Updates that are
// committed together.
//
// What a Store guarantees:
//
//   - Each commit has an index, which grows from commit to commit, and never again becomes
//     smaller: not after a restart, and not after the store was compacted. In a store that
//     daemons share, a commit has the same index at all of them.
//   - A commit is all or nothing, however many entries it changes, at every reader.
//   - When an Update has returned, its commit is durable and in Snapshot, and OnCommit has
//     returned. The order of commits is the same at all daemons.
//   - An Update is serializable: what its function read is unchanged at the commit. That is
//     so for a function that returns an error or writes nothing, too: its result is true of
//     the last commit before the Update returned, not of an outdated version.
package store
