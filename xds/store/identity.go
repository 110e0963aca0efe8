package store

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// checkInterval is how often the writer checks that the file still has its name.
const checkInterval = 2 * time.Second

// LostError reports that the open file no longer has its name, because it or its
// directory was removed, renamed or replaced, or that another program wrote to it.
// The next start would not find what is written to it, or would find it damaged. The
// error ends when the file has its name and its size again.
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

var errReplaced = errors.New("another file is in its place")

// identity returns a *LostError unless the open file still has its name and is as
// long as the writer left it.
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
	if size := opened.Size(); size < f.end.size || size > f.end.size && !f.torn {
		return &LostError{Path: f.path, Reason: fmt.Errorf("it has %d bytes, where lbd wrote %d", size, f.end.size)}
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

// check reports a file that lost its name, or has it again. The writer calls it.
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
		s.logger.Info("lbd.db is back in place", "file", s.file.path)
		s.onLost(nil)
	}
}

// unchanged confirms writes that change nothing: the disk must have what is in memory,
// which it may not after a commit that failed.
func (s *Store) unchanged(before *Snapshot, written Changes) (*Snapshot, error) {
	if s.file == nil || len(written) == 0 {
		return before, nil
	}
	if err := s.file.ready(); err != nil {
		s.check()
		return before, fmt.Errorf("%w: %w", ErrCannotWrite, err)
	}
	return before, nil
}
