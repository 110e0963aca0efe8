package file

import (
	"context"
	"fmt"

	"github.com/lbd-dev/lbd/xds/store"
)

// A copying is a Copy on its way through the writer.
type copying struct {
	of   *store.Snapshot
	done chan error
}

// Copy makes the store a copy of a snapshot of another store: with its index, which may be
// smaller than that of the store, and with the times and indices of its entries. An entry whose
// value is there already stays as it is. Copy returns when that is durable. Errors are those of
// Update. ctx has no effect once the copy is being written.
func (s *Store) Copy(ctx context.Context, of *store.Snapshot) error {
	c := &copying{of: of, done: make(chan error, 1)}
	select {
	case s.copies <- c:
		return <-c.done
	case <-ctx.Done():
		return ctx.Err()
	case <-s.queue.Closing:
		return store.ErrClosed
	}
}

// copy is the writer's part of Copy.
func (s *Store) copy(of *store.Snapshot) error {
	before := s.current.Load()
	changed := store.Difference(before, of)
	if of.Index() == before.Index() && len(changed) == 0 {
		return nil
	}
	if s.file != nil {
		if err := s.file.copy(before, of); err != nil {
			s.check()
			return fmt.Errorf("%w: %w", store.ErrCannotWrite, err)
		}
	}
	s.current.Store(of)
	s.onCommit(store.Commit{After: of, Changed: changed})
	if s.file != nil {
		s.file.compact(of)
	}
	return nil
}

// copy makes the file one of after. Indices do not decrease within a file: it is replaced by
// another one if they would.
func (f *file) copy(before, after *store.Snapshot) error {
	if after.Index() > before.Index() {
		return f.commit(before, after, store.Difference(before, after))
	}
	if err := f.ready(); err != nil {
		return err
	}
	if err := f.replace(after); err != nil {
		return err
	}
	return f.ready()
}
