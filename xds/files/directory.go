package files

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
)

// A look is what the directory shows without a file being read.
type look struct {
	files map[string]glance
	// ignored are names of what is no resource file.
	ignored []string
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
	entries, err := os.ReadDir(dir)
	if err != nil {
		return look{err: err}
	}
	l := look{files: make(map[string]glance, len(entries))}
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

// same reports whether nothing tells that two looks' files differ.
func (l look) same(o look) bool {
	return text(l.err) == text(o.err) && maps.EqualFunc(l.files, o.files, func(a, b glance) bool {
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
	decoding resource.Options // but for the format
	path     string
	files    map[string]*file
	// bad is a fault of the directory itself.
	bad *Bad
}

// read takes what a look saw: it reads what may have changed, and forgets what is
// gone. While the directory cannot be read, all stays as it was.
func (d *directory) read(l look, now time.Time) {
	if l.err != nil {
		d.fail(l.err, len(d.files) > 0, now)
		return
	}
	maps.DeleteFunc(d.files, func(name string, _ *file) bool {
		_, there := l.files[name]
		return !there
	})
	names := slices.Sorted(maps.Keys(l.files))
	over, kept := 0, false
	for i, name := range names {
		f := d.files[name]
		if f == nil && i >= MaxFiles {
			over++
			continue
		}
		if f == nil {
			f = &file{decoding: d.decoding}
			d.files[name] = f
		}
		switch seen := l.files[name]; {
		case i >= MaxFiles:
			over++
			kept = kept || f.good != nil
			f.stamp, f.sum = nil, [len(f.sum)]byte{}
			f.fail(fmt.Errorf("is not read: %d files come before it by name, and no more are read", i), now)
		case seen.err != nil:
			f.stamp, f.sum = nil, [len(f.sum)]byte{}
			f.fail(seen.err, now)
		default:
			f.read(filepath.Join(d.path, name), seen.info, now)
		}
	}
	if over == 0 {
		d.bad = nil
		return
	}
	d.fail(fmt.Errorf("read %s: holds %d files, of at most %d: those from %s on are not read",
		d.path, len(names), MaxFiles, names[MaxFiles]), kept, now)
}

// fail notes a fault of the directory.
func (d *directory) fail(err error, kept bool, now time.Time) {
	if d.bad != nil {
		now = d.bad.Since
	}
	d.bad = &Bad{File: Directory, Err: err, Since: now, Kept: kept}
}

// fresh reports whether a file may have changed and look as it did.
func (d *directory) fresh() bool {
	for _, f := range d.files {
		if f.stamp != nil && f.fresh {
			return true
		}
	}
	return false
}
