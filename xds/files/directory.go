package files

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/lbd-dev/lbd/xds/decode"
)

// A listing is the contents of the directory, without those of its files.
type listing struct {
	files    map[string]entry
	more     int      // files that are only counted
	ignored  []string // names of what is no resource file
	identity Identity
	err      error // why the directory cannot be read
}

// An entry is the info of a file, or why it cannot be read.
type entry struct {
	info fs.FileInfo
	err  error
}

// readListing lists a directory. Of files far beyond MaxFiles it lists those that are known.
func readListing(dir string, known map[string]*file) listing {
	identity, err := identify(dir)
	if err != nil {
		return listing{err: err}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return listing{err: err}
	}
	l := listing{files: make(map[string]entry, len(entries)), identity: identity}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || e.IsDir() {
			continue
		}
		if _, ok := FormatOf(name); !ok {
			l.ignored = append(l.ignored, name)
			continue
		}
		if known[name] == nil && len(l.files) >= maxListed {
			l.more++
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name)) // through symlinks
		switch {
		case err != nil:
			l.files[name] = entry{err: err}
		case info.Mode().IsRegular():
			l.files[name] = entry{info: info}
		default:
			l.ignored = append(l.ignored, name)
		}
	}
	return l
}

// identify returns the identity of a directory, or why it cannot be read.
func identify(dir string) (Identity, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return Identity{}, &fs.PathError{Op: "open", Path: dir, Err: errors.Unwrap(err)}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Identity{}, nil
	}
	return Identity{Device: uint64(stat.Dev), Inode: stat.Ino}, nil //nolint:unconvert // Dev's type depends on the system
}

func (l listing) same(o listing) bool {
	return text(l.err) == text(o.err) && l.identity == o.identity && l.more == o.more && maps.EqualFunc(l.files, o.files, func(a, b entry) bool {
		if a.info == nil || b.info == nil {
			return text(a.err) == text(b.err) && a.info == b.info
		}
		return sameFile(a.info, b.info)
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// directory is the state of the directory and its files. One goroutine at a time uses it.
type directory struct {
	*budget
	decoding decode.Options // without the format
	path     string
	files    map[string]*file
}

// read reads the files of a listing that may have changed, and removes those that are gone.
// While the directory cannot be read, nothing changes; neither do files that wait.
func (d *directory) read(l listing, k *look, waiting map[string]bool) *Scan {
	now := k.now
	if l.err != nil {
		return &Scan{Err: l.err}
	}
	maps.DeleteFunc(d.files, func(name string, _ *file) bool {
		_, there := l.files[name]
		return !there
	})
	s := &Scan{Identity: l.identity, Files: make(map[string]*File, len(l.files))}
	names := slices.Sorted(maps.Keys(l.files))
	for i, name := range names {
		f := d.file(name)
		if waiting[name] {
			f.wait(k)
			s.Files[name] = f.state
			continue
		}
		f.settle()
		switch seen := l.files[name]; {
		case i >= MaxFiles:
			f.fail(fmt.Errorf("is not read: %d files come before it by name, and no more are read", i), now)
		case seen.err != nil:
			f.fail(seen.err, now)
		default:
			f.read(filepath.Join(d.path, name), seen.info, k)
			delete(k.writing, name) // what it became is read
		}
		s.Files[name] = f.state
	}
	if len(names) > MaxFiles {
		s.Over = fmt.Errorf("read %s: holds %d files, of at most %d: those from %s on are not read",
			d.path, len(names)+l.more, MaxFiles, names[MaxFiles])
	}
	return s
}

func (d *directory) file(name string) *file {
	f := d.files[name]
	if f == nil {
		f = &file{budget: d.budget, decoding: d.decoding}
		d.files[name] = f
	}
	return f
}

// fresh reports whether a file may have changed without a visible difference.
func (d *directory) fresh() bool {
	for _, f := range d.files {
		if f.stamp != nil && f.fresh {
			return true
		}
	}
	return false
}

// short reports whether a file could not be read because lbd lacks a resource.
func (d *directory) short() bool {
	for _, f := range d.files {
		if f.short {
			return true
		}
	}
	return false
}
