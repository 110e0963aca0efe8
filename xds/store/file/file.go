package file

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

const (
	// minGarbage is the minimum number of outdated bytes before a compaction.
	minGarbage = 1 << 20
	// maxPatched is how many bytes of values patches may make at a start, beside 64 times those of all values.
	maxPatched = 256 << 20
	// compactPeriod is the time after which a compaction that failed is repeated: the disk may have space again.
	compactPeriod = time.Minute

	// reserveSize is the size of the file that a deletion removes if the disk is full.
	reserveSize   = 1 << 20
	reserveSuffix = ".reserve"
	// maxDeletion is how much more the entry in the history of a deletion may take than what is deleted.
	maxDeletion = 64 << 10
)

// A file is the store's file, open and locked. Only the writer uses it.
type file struct {
	path   string
	logger *slog.Logger
	os     *os.File
	end    position // of the last commit

	// whole: it can have no patches, as a file of an older version.
	whole bool
	// patched is the sum of the sizes of the values that patches make, which the next start has to copy.
	patched int64

	// torn: behind the end may be what a failed commit wrote, even all of it.
	torn bool
	// renamed: the name of the file may not be durable.
	renamed bool
	// unsynced: the acknowledged size may not be durable.
	unsynced bool
	// compactAt is the size below which a compaction that failed is not repeated before compactAfter, unless the
	// contents are half of what they were, compacted.
	compactAt, compacted int64
	compactAfter         time.Time
	// reserved: the file of reserve exists.
	reserved bool
}

// commit appends the changed keys of after. On a full disk, what deletes as many as it puts, such as a resource for an
// entry in the history, takes the reserve, and nothing else is stored until there is space for another one.
func (f *file) commit(before, after *store.Snapshot, changed []resource.Key) error {
	deleted, grown := 0, 0
	for _, key := range changed {
		was, _ := before.Get(key)
		e, put := after.Get(key)
		if grown += len(e.Raw) - len(was.Raw); put {
			deleted--
		} else {
			deleted++
		}
	}
	deletes := deleted >= 0 && grown <= maxDeletion
	if !deletes {
		if err := f.reserve(); err != nil {
			return err
		}
	}
	err := f.append(before, after, changed)
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
	if deletes && full && f.reserved {
		f.reserved = false
		if os.Remove(f.path+reserveSuffix) == nil {
			f.compactAt = 0
			err = f.append(before, after, changed)
		}
	}
	return err
}

// reserve makes sure that the disk has room for deletions. What is in the file cannot be compressed.
func (f *file) reserve() error {
	if f.reserved {
		return nil
	}
	path := f.path + reserveSuffix
	if info, err := os.Stat(path); err != nil || info.Size() != reserveSize {
		noise := make([]byte, reserveSize)
		_, _ = rand.Read(noise)
		if err := os.WriteFile(path, noise, fileMode); err != nil {
			return errors.Join(err, os.Remove(path))
		}
	}
	f.reserved = true
	return nil
}

// append appends the changed keys of after. After an error, the file is restored before the
// next commit at the latest.
func (f *file) append(before, after *store.Snapshot, changed []resource.Key) error {
	if err := f.ready(); err != nil {
		return err
	}
	end := f.end
	w := newWriter(f.os, end)
	for _, key := range changed {
		if e, found := after.Get(key); found {
			var was store.Entry
			if !f.whole {
				was, _ = before.Get(key)
			}
			w.put(&e, was.Raw)
		} else {
			w.delete(key)
		}
	}
	err := w.commit(after.Index())
	if err == nil {
		err = f.os.Sync()
	}
	if err == nil {
		f.end, f.patched = w.end, f.patched+w.patched
		err = f.identity() // the file may have lost its name meanwhile
	}
	if err != nil {
		f.end, f.torn = end, true
		_ = f.ready() // else the next commit does it
		return err
	}
	f.acknowledge()
	return nil
}

// ready makes sure that the file is in its place and ends with the last commit.
func (f *file) ready() error {
	if err := f.identity(); err != nil {
		return err
	}
	if f.renamed {
		if err := syncDir(filepath.Dir(f.path)); err != nil {
			return err
		}
		f.renamed = false
	}
	return f.cut()
}

// cut removes the records of a failed commit, so that the next start does not find them.
func (f *file) cut() error {
	if !f.torn {
		return nil
	}
	if err := errors.Join(f.os.Truncate(f.end.size), f.os.Sync()); err != nil {
		return err
	}
	f.torn = false
	return nil
}

// acknowledge records the size in the header, which reaches the disk with the next commit or
// Close. If it fails, damage to this commit looks like an unfinished write.
func (f *file) acknowledge() {
	header, _ := encodeHeader(f.end.size)
	_, _ = f.os.WriteAt(header[ackOffset:], ackOffset)
	f.unsynced = true
}

// compact replaces the file by one with s only, if that is less than half of it, or if its patches take long to read. If it
// fails, the old file stays in use.
func (f *file) compact(s *store.Snapshot) {
	compacted := sizeWith(s)
	if f.end.size < 2*compacted+minGarbage && f.patched < 64*compacted+maxPatched || f.end.size < f.compactAt && compacted > f.compacted/2 || f.ready() != nil {
		return
	}
	f.compactAt = 0
	if err := f.replace(s); err != nil {
		f.compactAt, f.compacted, f.compactAfter = 2*f.end.size, compacted, time.Now().Add(compactPeriod)
		f.logger.Warn("cannot compact lbd.db; the file keeps growing",
			"file", f.path, "bytes", f.end.size, "error", err)
	}
}

// compactAgain repeats a compaction that failed, after a while.
func (f *file) compactAgain(s *store.Snapshot) {
	if f.compactAt > 0 && time.Now().After(f.compactAfter) {
		f.compactAt = 0
		f.compact(s)
	}
}

// replace replaces the file by a new one with s.
func (f *file) replace(s *store.Snapshot) error {
	opened, err := openLocked(f.path+newSuffix, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	end, err := writeAs(f.path, opened, s)
	if err != nil {
		return err
	}
	f.renamed = true
	_ = closeLocked(f.os) // all of it is in the new one
	f.os, f.end, f.torn, f.whole, f.patched = opened, end, false, false, 0
	_ = f.ready() // else the next commit does it
	return nil
}

// close removes the records of a failed commit, and closes and unlocks the file.
func (f *file) close() error {
	var err error
	if f.torn {
		if err = f.ready(); err != nil {
			err = fmt.Errorf("%w: %w", store.ErrCannotWrite, err)
		}
	}
	if f.unsynced {
		err = errors.Join(err, f.os.Sync())
	}
	return errors.Join(err, closeLocked(f.os))
}

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
func (s *Store) unchanged(before *store.Snapshot, written store.Changes) (*store.Snapshot, error) {
	if s.file == nil || len(written) == 0 {
		return before, nil
	}
	if err := s.file.ready(); err != nil {
		s.check()
		return before, fmt.Errorf("%w: %w", store.ErrCannotWrite, err)
	}
	return before, nil
}
