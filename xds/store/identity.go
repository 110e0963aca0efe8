package store

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// checkInterval is how often the writer checks that the file still has its name.
const checkInterval = 2 * time.Second

// LostError reports that the open file no longer has its name: somebody removed,
// renamed or replaced it, or its directory. Nothing that is written to it would be
// found by the next start. It ends when the file has its name again.
type LostError struct {
	Path string
	// Reason is what is there instead.
	Reason error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s was removed or replaced while in use: %v; move it back, or restart lbd to use what is there now",
		e.Path, e.Reason)
}

func (e *LostError) Unwrap() error { return e.Reason }

var errReplaced = errors.New("another file has its name")

// identity returns a *LostError unless the open file still has its name.
func (f *file) identity() error {
	opened, err := f.os.Stat()
	if err != nil {
		return &LostError{Path: f.path, Reason: err}
	}
	named, err := os.Stat(f.path)
	if err != nil {
		return &LostError{Path: f.path, Reason: err}
	}
	if !os.SameFile(opened, named) {
		return &LostError{Path: f.path, Reason: errReplaced}
	}
	return nil
}

// confirm makes sure that the disk holds the written keys as they are in s,
// although they are unchanged: after a failed commit it may hold them otherwise.
func (f *file) confirm(s *Snapshot, written overlay) error {
	for key := range written {
		if _, unsure := f.unsure[key]; unsure {
			return f.commit(s, nil)
		}
	}
	if err := f.identity(); err != nil {
		return fmt.Errorf("%w: %w", ErrCannotWrite, err)
	}
	return nil
}

// Err returns a *[LostError] while the file does not have its name, as of the last
// commit or check, which is at most some seconds old; else nil. It never waits.
func (s *Store) Err() error {
	if lost := s.lost.Load(); lost != nil {
		return *lost
	}
	return nil
}

// check looks whether the file still has its name, and reports a change. The
// writer calls it.
func (s *Store) check() {
	if s.file == nil {
		return
	}
	err := s.file.identity()
	was := s.lost.Load()
	switch {
	case err != nil && was == nil:
		s.lost.Store(&err)
		s.logger.Error("the store's file is gone: nothing can be pushed", "error", err)
		s.onLost(err)
	case err == nil && was != nil:
		s.lost.Store(nil)
		s.logger.Info("the store's file has its name again", "file", s.file.path)
		s.onLost(nil)
	}
}

// unchanged answers writes that change nothing: that holds only if the disk has
// them.
func (s *Store) unchanged(before *Snapshot, written overlay) (*Snapshot, error) {
	if s.file == nil || len(written) == 0 {
		return before, nil
	}
	err := s.file.confirm(before, written)
	if err != nil {
		s.check()
	}
	return before, err
}
