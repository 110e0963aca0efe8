package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
)

// writing is what the notifications say of a file: how it came to what it is.
type writing int

const (
	unnotified writing = iota // nothing
	created                   // a file or a link was created, and nothing was written since
	written                   // no writer has closed it since
	closed                    // a writer has closed it, and nothing was written since
	moved                     // it was written elsewhere, and renamed
)

type timing struct {
	quiet  time.Duration // without a change, until files are read
	long   time.Duration // the same for a file that may be unfinished
	most   time.Duration // after the first change, until files are read that do not wait for a writer
	rescan time.Duration // between listings without a notification
}

// look is what a look at the directory knows besides its listing.
type look struct {
	timing
	now      time.Time
	first    bool // no look was before it
	again    bool // it is only for files that wait
	still    bool // no change was notified for the quiet time
	notified bool // the changes were notified, and who writes
	writing  map[string]writing
}

// waiting returns the files of a listing that are not to be read yet.
func (d *directory) waiting(l listing, k *look) map[string]bool {
	out := map[string]bool{}
	for name, seen := range l.files {
		if seen.err == nil && d.file(name).waits(filepath.Join(d.path, name), seen.info, k) {
			out[name] = true
		}
	}
	return out
}

// waits reports whether the file is not to be read yet, because its content may be unfinished: a program may
// still write it. A prefix of a text is often valid. info is the current one.
//
// No time proves that a file is complete, so the file waits while it has a writer, however long that is. Where the
// system cannot say whether it has, and for a text that does not end with a newline, the file has to stay as it is
// for long. What is renamed, or comes with another directory, is complete.
func (f *file) waits(path string, info fs.FileInfo, k *look) bool {
	if f.unchanged(info) {
		return false
	}
	if f.seen == nil || !sameFile(f.seen, info) {
		f.seen, f.seenAt = info, k.now
	}
	how, age := k.writing[filepath.Base(path)], k.now.Sub(f.seenAt)
	if k.first {
		age = k.now.Sub(info.ModTime())
	}
	switch has, known, ended := inspect(path); {
	case has:
		return true
	case how == written && !known: // truncate(2) opens nothing, so nobody closes the file
		return age < k.rescan
	case how == moved, k.notified && f.replaced(path, info, how):
		return false
	case k.first && (known || ended || isLink(path)): // a start needs what is there at once
		return false
	case (known || how == closed) && ended:
		return !k.still && age < k.quiet
	default:
		return age < k.long
	}
}

// replaced reports whether a link to the file was replaced, or a directory on its path.
func (f *file) replaced(path string, info fs.FileInfo, how writing) bool {
	return how == created && isLink(path) || how == unnotified && f.stamp != nil && !os.SameFile(f.stamp, info)
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// inspect reports whether a file has a writer, whether that is known, and whether the file ends as a complete one
// does: a text with a newline. Why a file cannot be read is for those who read it.
func inspect(path string) (has, known, ended bool) {
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, true, true
	}
	defer func() { _ = in.Close() }() // nothing was written
	info, err := in.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false, true, true
	}
	format, _ := FormatOf(path) // a listing has no others
	if ended = format == decode.FormatProtobuf; !ended && info.Size() > 0 {
		var last [1]byte
		_, err = in.ReadAt(last[:], info.Size()-1)
		ended = err == nil && last[0] == '\n'
	}
	has, known = hasWriter(in)
	return has, known, ended
}

// wait keeps what was read of the file, and reports after a while that it waits.
func (f *file) wait(k *look) {
	if f.waitsSince.IsZero() {
		f.waitsSince = k.now
	}
	switch {
	case f.state == nil:
		f.state = &File{Waits: f.waitsSince}
	case f.state.Waits.IsZero() && k.now.Sub(f.waitsSince) >= k.most:
		f.state = f.state.waiting(f.waitsSince)
	}
}

// settle ends the wait.
func (f *file) settle() {
	if f.waitsSince = (time.Time{}); f.state != nil && !f.state.Waits.IsZero() {
		f.state = f.state.waiting(time.Time{})
	}
}

func (f *File) waiting(since time.Time) *File {
	out := *f
	out.Waits = since
	return &out
}
