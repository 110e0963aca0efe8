package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lbd-dev/lbd/xds/resource"
)

// schemaVersion is that of the files that are written.
const schemaVersion = 1

const (
	fileName     = "lbd.db"
	fileMode     = 0o600
	damagedInfix = ".damaged-"
)

var (
	metaBucket     = []byte("meta")
	resourceBucket = []byte("resources")
	schemaKey      = []byte("schema")
	tallyKey       = []byte("tally")
)

// A file is the store's bbolt file, open and locked.
type file struct {
	path string
	os   *os.File
	db   *bbolt.DB

	// unsure are the keys of commits that failed. The disk may hold them all the
	// same: bbolt's last write can arrive although its fsync failed. So the next
	// commit writes them again, as they are in memory.
	unsure map[resource.Key]struct{}
	// broken is set once bbolt has panicked: its state in memory is then unknown.
	broken error
}

// damage is an error that means: this file is not as it was written.
type damage struct{ error }

func (d damage) Unwrap() error { return d.error }

func damaged(format string, args ...any) error { return damage{fmt.Errorf(format, args...)} }

// damagedFiles are the names of the files that were set aside, by name: the
// newest last, unless many are of one second.
func damagedFiles(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // Open will say what is wrong with the directory
	}
	var names []string
	for _, entry := range entries {
		if ok, _ := filepath.Match(fileName+damagedInfix+"*", entry.Name()); ok {
			names = append(names, entry.Name())
		}
	}
	return names
}

// openFile opens, locks and reads the file in dir, which is made if it is absent
// and none was set aside earlier. A damaged one is set aside.
func openFile(dir string, earlier []string, now func() time.Time) (*file, *Snapshot, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, nil, err
	}
	f := &file{path: filepath.Join(dir, fileName), unsure: map[resource.Key]struct{}{}}
	if !exists(f.path) {
		if n := len(earlier); n > 0 {
			return nil, nil, &DamagedError{Path: f.path, SetAside: filepath.Join(dir, earlier[n-1])}
		}
		if err := createFile(f.path); err != nil {
			return nil, nil, fmt.Errorf("create %s: %w", f.path, err)
		}
	}
	snapshot, err := f.open()
	if err == nil {
		return f, snapshot, nil
	}
	// Renamed while locked: nobody else can have begun to use it.
	if d := (damage{}); errors.As(err, &d) {
		err = setAside(f.path, d.error, now())
	}
	return nil, nil, errors.Join(err, f.release())
}

func setAside(path string, reason error, now time.Time) error {
	stem := path + damagedInfix + now.UTC().Format("20060102T150405Z")
	to := stem
	for n := 2; exists(to); n++ {
		to = fmt.Sprintf("%s-%d", stem, n)
	}
	if err := os.Rename(path, to); err != nil {
		return &DamagedError{Path: path, Reason: errors.Join(reason, err)}
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		reason = errors.Join(reason, err)
	}
	return &DamagedError{Path: path, SetAside: to, Reason: reason}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// open returns what the file holds. Whatever bbolt or a wrong offset does
// meanwhile is damage: bbolt panics on pages it does not like, and reads the file
// through a mapping, where a wrong address is a fault.
func (f *file) open() (snapshot *Snapshot, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			snapshot, err = nil, damaged("reading it panicked: %v", p)
		}
	}()

	options := boltOptions(func(path string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		if f.os, err = openLocked(path, flag&^os.O_CREATE, mode); err != nil {
			return nil, err
		}
		if err := checkFile(f.os); err != nil {
			return nil, err
		}
		return f.os, nil
	})
	if f.db, err = bbolt.Open(f.path, fileMode, options); err != nil {
		return nil, err
	}
	return f.load()
}

func boltOptions(open func(string, int, os.FileMode) (*os.File, error)) *bbolt.Options {
	return &bbolt.Options{
		OpenFile:     open,
		Timeout:      time.Millisecond, // never waited for: open has the lock
		FreelistType: bbolt.FreelistMapType,
		NoStatistics: true,
	}
}

// createFile makes an empty store at path, if there is none by then. It gets its
// name when it is complete, so that a file of that name was complete once,
// whatever it is now.
func createFile(path string) (err error) {
	unfinished := path + ".new"
	late := false
	db, err := bbolt.Open(unfinished, fileMode, boltOptions(func(unfinished string, flag int, mode os.FileMode) (*os.File, error) {
		file, err := openLocked(unfinished, flag, mode)
		if err != nil {
			return nil, err
		}
		// Only who has this lock gives a file its name.
		if exists(path) {
			late = true
			return nil, errors.Join(os.ErrExist, os.Remove(unfinished), file.Close())
		}
		if err := file.Truncate(0); err != nil { // left by a start that was killed
			return nil, errors.Join(err, file.Close())
		}
		return file, nil
	}))
	switch {
	case late:
		return nil
	case errors.Is(err, ErrInUse):
		return err
	case err != nil:
		return errors.Join(err, os.Remove(unfinished))
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	err = db.Update(func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucket(metaBucket)
		if err != nil {
			return err
		}
		_, err = tx.CreateBucket(resourceBucket)
		return errors.Join(err, meta.Put(schemaKey, encodeSchema(schemaVersion)), meta.Put(tallyKey, tally{}.encode()))
	})
	if err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	if err := os.Rename(unfinished, path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	_ = syncDir(filepath.Dir(dir)) // dir may be new, but who owns it need not be able to read where it lies
	return syncDir(dir)
}

// openLocked opens path and locks it, without waiting. bbolt locks the same
// descriptor again, which does nothing; but the file must not be judged before.
func openLocked(path string, flag int, mode os.FileMode) (*os.File, error) {
	for {
		opened, err := os.OpenFile(path, flag, mode)
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
			return nil, errors.Join(err, opened.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(mine, there) {
			return opened, nil
		}
		// Another process set it aside between the open and the lock.
		if err := opened.Close(); err != nil {
			return nil, err
		}
	}
}

func checkFile(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return damaged("it is empty: truncated")
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", f.Name(), err)
	}
	if err = checkLayout(data); err != nil {
		err = damage{err}
	}
	return errors.Join(err, syscall.Munmap(data))
}

// load reads every record and checks it.
func (f *file) load() (*Snapshot, error) {
	snapshot := &Snapshot{}
	err := f.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			return damaged("no schema version: not a file that lbd wrote")
		}
		switch version, err := decodeSchema(meta.Get(schemaKey)); {
		case err != nil:
			return damage{err}
		case version > schemaVersion:
			return &SchemaError{Path: f.path, Found: version, Supported: schemaVersion}
		case version != schemaVersion:
			return damaged("schema version %d never was", version)
		}
		want, err := decodeTally(meta.Get(tallyKey))
		if err != nil {
			return damage{err}
		}
		resources := tx.Bucket(resourceBucket)
		if resources == nil {
			return damaged("no bucket of resources")
		}
		for c, key := resources.Cursor(), []byte(nil); ; {
			var record []byte
			if key == nil {
				key, record = c.First()
			} else {
				key, record = c.Next()
			}
			if key == nil {
				break
			}
			item, err := decodeRecord(key, bytes.Clone(record))
			if err != nil {
				return damage{err}
			}
			snapshot.items = append(snapshot.items, item)
			snapshot.sum += item.sum()
		}
		if got := snapshot.tally(); got != want {
			return damaged("%d records with sum %x, where %d with sum %x were written", got.count, got.sum, want.count, want.sum)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return snapshot, nil
}

// commit makes the changed keys in the file what they are in s.
func (f *file) commit(s *Snapshot, changed []resource.Key) error {
	if err := f.identity(); err != nil {
		return fmt.Errorf("%w: %w", ErrCannotWrite, err)
	}
	for _, key := range changed {
		f.unsure[key] = struct{}{}
	}
	if err := f.flush(s); err != nil {
		return fmt.Errorf("%w: %w", ErrCannotWrite, err)
	}
	clear(f.unsure)
	return nil
}

func (f *file) flush(s *Snapshot) (err error) {
	if f.broken != nil {
		return f.broken
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			f.broken = fmt.Errorf("%s was damaged while in use: %v", f.path, p)
			err = f.broken
		}
	}()
	err = f.db.Update(func(tx *bbolt.Tx) error {
		resources := tx.Bucket(resourceBucket)
		for key := range f.unsure {
			var err error
			if i, found := search(s.items, key); found {
				err = resources.Put(encodeKey(key), s.items[i].record)
			} else {
				err = resources.Delete(encodeKey(key))
			}
			if err != nil {
				return err
			}
		}
		return tx.Bucket(metaBucket).Put(tallyKey, s.tally().encode())
	})
	if err != nil {
		return err
	}
	return f.identity() // the file may have lost its name meanwhile
}

// close writes s where the disk may hold something else, and closes the file.
func (f *file) close(s *Snapshot) error {
	var err error
	if len(f.unsure) > 0 {
		err = f.commit(s, nil)
	}
	return errors.Join(err, f.release())
}

// release closes the file, which gives back the lock, without touching what is in
// it.
func (f *file) release() error {
	if f.db != nil && f.broken == nil {
		return f.db.Close()
	}
	// bbolt may hold its mutexes for ever, or not have got so far. Its mapping
	// stays, and would keep the lock.
	if f.os == nil {
		return nil
	}
	return errors.Join(syscall.Flock(int(f.os.Fd()), syscall.LOCK_UN), f.os.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
