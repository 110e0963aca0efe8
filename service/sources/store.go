package sources

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/observe"
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

// storeHealth remembers why the store cannot make pushes durable. Its methods may be
// called from any goroutine.
type storeHealth struct {
	logger *slog.Logger
	events *observe.Events

	mu     sync.Mutex
	lost   failure // the store's file lost its name
	writes failure // the last write failed
}

// failure is an error, and when it began; the zero failure is none.
type failure struct {
	err   error
	since time.Time
}

// set sets f, one of the failures of h, to an error or to nil. If that begins or ends the
// failure, it adds an event, and returns true.
func (h *storeHealth) set(f *failure, err error, began, ended string) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := *f
	switch {
	case err == nil:
		*f = failure{}
		if was.err != nil {
			h.events.Add(observe.Event{Type: observe.EventStoreRecovered, Says: ended})
		}
	case was.err == nil:
		*f = failure{err: err, since: time.Now()}
		h.events.Add(observe.Event{Type: observe.EventStoreFailing, Says: began, Error: err.Error()})
	default:
		f.err = err
	}
	return (was.err == nil) != (err == nil)
}

// StoreLost records that the store's open file lost its name, or with nil that it
// has it again. It is the store's OnLost.
func (h *storeHealth) StoreLost(err error) {
	h.set(&h.lost, err, "lbd.db was removed or replaced: pushes are rejected", "lbd.db is back in place: pushes are accepted")
}

// wrote records whether a push could be made durable.
func (h *storeHealth) wrote(err error) {
	const began, ended = "a push could not be written to disk", "pushes are written to disk again"
	switch {
	case errors.As(err, new(*store.LostError)): // StoreLost reports it
	case !h.set(&h.writes, err, began, ended):
	case err != nil:
		h.logger.Error("pushes cannot be written to disk", "error", err)
	default:
		h.logger.Info(ended)
	}
}

func (h *storeHealth) conditions() []observe.Condition {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []observe.Condition
	if f := h.lost; f.err != nil {
		out = append(out, observe.Condition{
			Kind: observe.ConditionStoreFailing, Since: f.since, NotReady: true,
			Text:   "pushes are refused, because they would be lost: " + f.err.Error(),
			Remedy: "move the file back, or restart lbd",
		})
	}
	if f := h.writes; f.err != nil {
		out = append(out, observe.Condition{
			Kind: observe.ConditionStoreFailing, Since: f.since,
			Text:   "the last push was refused: " + f.err.Error() + "; picks use the stored resources",
			Remedy: "free space in the data directory; the next push that can be written ends this",
		})
	}
	return out
}
