package sources

import (
	"context"

	"github.com/lbd-dev/lbd/xds/store"
)

// Store keeps pushed resources. [store.Store] keeps them in a file of this daemon; a
// store that daemons share, such as etcd, can replace it. It makes its snapshots with
// [store.Snapshot.Apply], and its transactions with [store.Snapshot.Begin]. The service
// relies on:
//
//   - Reading. Snapshot returns a consistent state without waiting; before Start, all that
//     is stored.
//   - Notification. The store calls [Sources.Commit] once for each commit that changed
//     something, by this daemon or by another one, in the order of the commits and never
//     concurrently, when it is durable and in Snapshot. Commits that are read at once may
//     be reported as one. An Update returns after its commit was reported. The store calls
//     [Sources.StoreLost] when commits begin and cease to be impossible.
//   - Value. An entry that this daemon put has its [store.Entry].Value, in transactions, in
//     commits and in snapshots. An entry that was read from disk, or that another daemon
//     put, has none: it is decoded from Raw.
type Store interface {
	// Snapshot returns what is stored: the last commit that this daemon knows.
	Snapshot() *store.Snapshot

	// Update runs fn and commits what it puts and deletes: all or nothing. It returns
	// when the commit is durable and was reported.
	//
	// Preconditions are reads: fn reads what it depends on, and returns an error if that
	// is not as required. What fn read with Get, or with All, is unchanged at the commit,
	// also by other daemons. A shared store detects a conflict when it commits, and runs
	// fn again: fn must only use tx, and set results that its next run sets again.
	//
	// The error of fn is returned as it is. Other errors:
	//   - [store.ErrTooLarge]: a value or the transaction exceeds a limit of the store. The
	//     file has none for a transaction, and [store.MaxValueSize] for a value; etcd's
	//     defaults are 128 operations and 1.5 MiB for a transaction.
	//   - [store.ErrCannotWrite]: the commit is not durable, and has no effect.
	//   - [store.ErrClosed], or the error of ctx: fn did not run.
	Update(ctx context.Context, fn func(tx *store.Tx) error) (*store.Snapshot, error)

	// Err returns why commits would fail now, or nil. It does not wait.
	Err() error

	// Close waits for running Updates. The service does not call it: the code that opened
	// the store closes it, after the service.
	Close() error
}
