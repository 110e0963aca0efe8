package store

import (
	"context"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Store keeps entries. Its methods are safe for concurrent use.
//
//   - Notification. A store is opened with functions that it calls. OnCommit is called once
//     for each [Commit], by this daemon or by another one, in the order of the commits and
//     never concurrently, when it is durable and in Snapshot, and before the Updates in it
//     return. Commits that are read at once may be reported as one. OnLost is called with the
//     reason when commits begin to be impossible, and with nil when they are possible again.
//     Both must be quick, and must not call Update or Close.
//   - Value. An entry that this daemon put has its [Entry].Value, in transactions, in
//     commits and in snapshots. An entry that was read from disk, or that another daemon
//     put, has none: it is decoded from Raw.
type Store interface {
	// Snapshot returns what is stored, without waiting: the last commit that this daemon
	// knows.
	Snapshot() *Snapshot

	// Update runs fn and commits what it writes: all or nothing. It returns when the commit
	// is durable and was reported, with a snapshot that has it. That snapshot may have other
	// commits, too; its index is not smaller than that of the commit.
	//
	// Preconditions are reads: fn reads what it depends on, and returns an error if that
	// is not as required. What fn read with Get, Delete or All is unchanged at the commit,
	// also by other daemons, and of a type read with Of none was put. A shared store detects
	// a conflict when it commits, and runs fn again: fn must only use tx, and set results
	// that its next run sets again.
	//
	// The error of fn is returned as it is, and a panic as a [*PanicError]. Other errors:
	//   - [ErrInvalidKey] and [ErrTooLarge], which Put returns.
	//   - [ErrNewer]: a newer lbd wrote what it would change.
	//   - [ErrCannotWrite]: the commit is not durable, and has no effect.
	//   - [ErrUnavailable]: the store cannot be reached. The commit has no effect, unless the
	//     error is an [*UnknownOutcomeError].
	//   - [ErrClosed], or the error of ctx: the Update has no effect.
	Update(ctx context.Context, fn func(tx *Tx) error) (*Snapshot, error)

	// Loaded reports whether Snapshot has what was stored when it was last read. It is false
	// for a shared store that was never read, and of which there is no local copy: its snapshot
	// is empty then, and that says nothing. It does not wait.
	Loaded() bool

	// Err returns why commits would fail now, or nil. It does not wait.
	Err() error

	// Close waits for running Updates. Its user does not call it: the code that opened
	// the store closes it, after the users.
	Close() error
}

// Commit is what one or more Updates, committed together, changed.
type Commit struct {
	// After is the snapshot that the commit made. It has the index of the commit.
	After *Snapshot
	// Changed are the keys whose value differs, in order. Of one that is not in After,
	// the entry was removed. It is empty if the commit only put what was there: the index
	// grows all the same.
	Changed []resource.Key
}
