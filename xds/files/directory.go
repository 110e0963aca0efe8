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
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
)

// A look is what the directory shows without a file being read.
type look struct {
	files map[string]glance
	// ignored are names of what is no resource file.
	ignored  []string
	identity Identity
	// err is why the directory cannot be read.
	err error
}

// A glance is what there is under a name: info, or why there is none.
type glance struct {
	info fs.FileInfo
	err  error
}

// lookAt looks at a directory.
func lookAt(dir string) look {
	identity, err := identify(dir)
	if err != nil {
		return look{err: err}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return look{err: err}
	}
	l := look{files: make(map[string]glance, len(entries)), identity: identity}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") || e.IsDir() {
			continue
		}
		if _, ok := FormatOf(name); !ok {
			l.ignored = append(l.ignored, name)
			continue
		}
		info, err := os.Stat(filepath.Join(dir, name)) // through symlinks
		switch {
		case err != nil:
			l.files[name] = glance{err: err}
		case info.Mode().IsRegular():
			l.files[name] = glance{info: info}
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

// same reports whether nothing tells that two looks' files differ.
func (l look) same(o look) bool {
	return text(l.err) == text(o.err) && l.identity == o.identity && maps.EqualFunc(l.files, o.files, func(a, b glance) bool {
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

// directory is all that is known of the directory and its files. It is used by
// one goroutine at a time.
type directory struct {
	decoding decode.Options // but for the format
	path     string
	files    map[string]*file
}

// read takes what a look saw: it reads what may have changed, and forgets what is
// gone. While the directory cannot be read, all stays as it was.
func (d *directory) read(l look, now time.Time) *Scan {
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
		f := d.files[name]
		if f == nil {
			f = &file{decoding: d.decoding}
			d.files[name] = f
		}
		switch seen := l.files[name]; {
		case i >= MaxFiles:
			f.fail(fmt.Errorf("is not read: %d files come before it by name, and no more are read", i), now)
		case seen.err != nil:
			f.fail(seen.err, now)
		default:
			f.read(filepath.Join(d.path, name), seen.info, now)
		}
		s.Files[name] = f.state
	}
	if len(names) > MaxFiles {
		s.Over = fmt.Errorf("read %s: holds %d files, of at most %d: those from %s on are not read",
			d.path, len(names), MaxFiles, names[MaxFiles])
	}
	return s
}

// fresh reports whether a file may have changed and look as it did, or could not be
// read for a shortage of lbd's own.
func (d *directory) fresh() bool {
	for _, f := range d.files {
		if f.short || f.stamp != nil && f.fresh {
			return true
		}
	}
	return false
}
