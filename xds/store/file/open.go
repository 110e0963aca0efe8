package file

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/xds/store"
)

const (
	// Name is the name of the file in its directory.
	Name        = "lbd.db"
	fileMode    = 0o600
	newSuffix   = ".new" // of a file that is being written
	intactInfix = ".intact-"
)

// damage is the error of a file that differs from what was written.
type damage struct {
	error
	intact *store.Snapshot // of the last commit before the damage; nil if there is none
}

func (d damage) Unwrap() error { return d.error }

// damagedFiles returns the names of the files that were set aside, in order.
func damagedFiles(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // Open returns the error of the directory
	}
	var names []string
	for _, entry := range entries {
		if ok, _ := filepath.Match(Name+damagedInfix+"*", entry.Name()); ok {
			names = append(names, entry.Name())
		}
	}
	return names
}

// openFile opens, locks and reads the file in dir. It creates one unless an earlier file was
// set aside, and sets a damaged file aside.
func openFile(dir string, earlier []string, logger *slog.Logger, now func() time.Time) (*file, *store.Snapshot, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, nil, err
	}
	path := filepath.Join(dir, Name)
	if !exists(path) {
		if n := len(earlier); n > 0 {
			return nil, nil, &DamagedError{Path: path, SetAside: filepath.Join(dir, earlier[n-1])}
		}
		if err := writeNamed(path, &store.Snapshot{}); err != nil {
			return nil, nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	opened, err := openLocked(path, os.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	f := &file{path: path, os: opened, logger: logger}
	snapshot, err := f.load()
	if err == nil {
		_ = f.reserve() // else the next commit does it
		return f, snapshot, nil
	}
	// Renamed while locked: no other process can have begun to use it.
	if d := (damage{}); errors.As(err, &d) {
		err = setAside(path, d, now())
	}
	return nil, nil, errors.Join(err, closeLocked(f.os))
}

// load reads the file, and cuts off an unfinished transaction.
func (f *file) load() (*store.Snapshot, error) {
	info, err := f.os.Stat()
	if err != nil {
		return nil, err
	}
	l, err := readLog(f.os, info.Size())
	if err != nil {
		if other, ok := errors.AsType[*SchemaError](err); ok {
			other.Path = f.path
		}
		return nil, err
	}
	f.end, f.whole, f.patched = l.end, l.whole, l.patched
	if l.unfinished != nil {
		f.logger.Warn("the last write to the store was not finished: it is discarded, and was not acknowledged",
			"file", f.path, "bytes", info.Size()-l.end.size, "reason", l.unfinished)
	}
	// What was not acknowledged may not be on disk yet.
	if info.Size() != l.acknowledged {
		f.torn = true
		if err := f.cut(); err != nil {
			return nil, err
		}
		f.acknowledge()
	}
	return l.snapshot, nil
}

type contents struct {
	snapshot     *store.Snapshot
	end          position // of the last commit
	acknowledged int64
	whole        bool  // of wholeVersion
	patched      int64 // as replay returns it
	unfinished   error // why what follows the last commit cannot be read; nil if nothing does
}

// readLog reads a file. The error is a damage, a *SchemaError without path, or of the disk.
func readLog(in io.ReaderAt, size int64) (c contents, err error) {
	head := make([]byte, min(size, headerSize))
	if _, err := io.ReadFull(io.NewSectionReader(in, 0, headerSize), head); err != nil {
		return c, err
	}
	version, acknowledged, start, err := decodeHeader(head)
	switch {
	case err != nil:
		return c, damage{error: err}
	case version != schemaVersion && version != wholeVersion:
		return c, &SchemaError{Found: version, Supported: schemaVersion}
	}
	left := size - headerSize
	c.acknowledged, c.whole = acknowledged, version == wholeVersion
	c.snapshot, c.end, c.patched, c.unfinished = replay(io.NewSectionReader(in, headerSize, left), start, left)
	if c.unfinished != nil && !errors.Is(c.unfinished, errUnreadable) {
		return c, c.unfinished
	}
	if c.end.size >= acknowledged {
		return c, nil
	}
	var d damage
	if size < acknowledged {
		d.error = fmt.Errorf("truncated from %d to %d bytes; the first %d bytes are valid", acknowledged, size, c.end.size)
	} else {
		d.error = fmt.Errorf("the first %d of %d bytes are valid: %w", c.end.size, acknowledged, c.unfinished)
	}
	if c.snapshot.Len() > 0 {
		d.intact = c.snapshot
	}
	return c, d
}

// setAside renames a damaged file, and writes what is intact of it to another one.
func setAside(path string, d damage, now time.Time) error {
	report := &DamagedError{Path: path, Reason: d.error}
	stamp := now.UTC().Format("20060102T150405Z")
	to := freeName(path + damagedInfix + stamp)
	if err := os.Rename(path, to); err != nil {
		report.Reason = errors.Join(report.Reason, err)
		return report
	}
	report.SetAside = to
	if err := syncDir(filepath.Dir(path)); err != nil {
		report.Reason = errors.Join(report.Reason, err)
	}
	if d.intact != nil {
		intact := freeName(path + intactInfix + stamp)
		if err := writeNamed(intact, d.intact); err != nil {
			report.Reason = errors.Join(report.Reason, fmt.Errorf("copy what is intact: %w", err))
		} else {
			report.Intact = intact
		}
	}
	return report
}

// freeName returns stem, with a number if the name exists.
func freeName(stem string) string {
	name := stem
	for n := 2; exists(name); n++ {
		name = fmt.Sprintf("%s-%d", stem, n)
	}
	return name
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// writeNamed writes a file that holds s, durable, unless there is a file of that name. It
// gets its name when it is complete, and only from the process that has its lock.
func writeNamed(path string, s *store.Snapshot) error {
	f, err := openLocked(path+newSuffix, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	if exists(path) {
		return errors.Join(os.Remove(f.Name()), closeLocked(f))
	}
	if _, err = writeAs(path, f, s); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	_ = syncDir(filepath.Dir(dir)) // dir may be new, but its owner need not be able to read its parent
	return errors.Join(syncDir(dir), closeLocked(f))
}

// writeAs writes s to a locked file and renames it to path; the name may not be durable. After
// an error, the file is removed and closed.
func writeAs(path string, f *os.File, s *store.Snapshot) (position, error) {
	end, err := writeSnapshot(f, s)
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()), closeLocked(f))
	}
	return end, err
}

// writeSnapshot makes f a file that holds s, durable but for its name.
func writeSnapshot(f *os.File, s *store.Snapshot) (position, error) {
	if err := f.Truncate(0); err != nil { // left by a process that was killed
		return position{}, err
	}
	_, start := encodeHeader(0)
	w := newWriter(f, start)
	for e := range s.All() {
		w.put(&e, nil)
	}
	err := w.commit(s.Index())
	if err == nil {
		header, _ := encodeHeader(w.end.size)
		_, err = f.WriteAt(header, 0)
	}
	return w.end, errors.Join(err, f.Sync())
}

// openLocked opens path and locks it, without waiting.
func openLocked(path string, flag int) (*os.File, error) {
	for {
		opened, err := os.OpenFile(path, flag, fileMode)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(opened.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EWOULDBLOCK):
			err = fmt.Errorf("%w: %s", ErrInUse, filepath.Dir(path))
		case err != nil:
			err = fmt.Errorf("lock %s: %w", path, err)
		}
		if err != nil {
			return nil, errors.Join(err, opened.Close())
		}
		mine, err := opened.Stat()
		if err != nil {
			return nil, errors.Join(err, closeLocked(opened))
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(mine, there) {
			return opened, nil
		}
		// Another process renamed or replaced it between the open and the lock.
		if err := closeLocked(opened); err != nil {
			return nil, err
		}
	}
}

// closeLocked unlocks a file and closes it. Closing alone does not unlock it while a process
// that is being started has a copy of the descriptor.
func closeLocked(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
