package files

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A prefix of a file can be valid. It is not read while a program has the file open for writing, however long that
// is, and the changes of other files are.
func TestAFileWaitsForItsWriter(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	whole := assignment("a", "h") + "  - endpoint: {address: {socket_address: {address: i, port_value: 8443}}}\n"
	write(t, a, assignment("a", "g"))
	w := start(t, dir, timing{quiet: time.Millisecond, long: time.Millisecond, most: 5 * time.Millisecond, rescan: time.Hour})
	const old = "ClusterLoadAssignment/a@a.yaml=g:80"
	w.expect(old)
	file, err := os.Create(a)
	do(t, err)
	for _, address := range []string{"x1", "x2"} { // the first prefix is a valid text, of the second a number has no end
		at := map[string]int{"x1": len(assignment("a", "h")), "x2": len(whole) - 4}[address]
		_, err = file.WriteAt([]byte(whole[:at]), 0)
		do(t, err)
		replace(t, b, assignment("b", address))
		for _, before := range w.until(old + "\nClusterLoadAssignment/b@b.yaml=" + address + ":80\nwaits a.yaml") {
			if !strings.Contains(before, old) {
				t.Errorf("before the end of the file:\n%s", before)
			}
		}
	}
	_, err = file.WriteAt([]byte(whole), 0)
	do(t, err)
	do(t, file.Close())
	w.until("ClusterLoadAssignment/a@a.yaml=h:80=i:8443\nClusterLoadAssignment/b@b.yaml=x2:80")
}

// A file that is being written when the watcher begins waits as well, without a version.
func TestAFileThatIsNewWaitsForItsWriter(t *testing.T) {
	dir := t.TempDir()
	file, err := os.Create(filepath.Join(dir, "a.yaml"))
	do(t, err)
	_, err = file.WriteString(assignment("a", "h"))
	do(t, err)
	w := start(t, dir, timing{quiet: time.Millisecond, most: time.Millisecond, rescan: time.Hour})
	w.expect("waits a.yaml")
	do(t, file.Close())
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80")
}

// TestWhatWaits: a file may be unfinished if it has a writer or does not end as texts do, except where it was renamed
// or comes with a directory.
func TestWhatWaits(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	do(t, os.Symlink(path, link))
	const ended, unended = "a: 1\n", "a: 1"
	written := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	write(t, path, "another")
	another, err := os.Stat(path)
	do(t, err)
	for _, c := range []struct {
		name, content string
		how           writing
		look          look
		path          string
		open, read    bool // it has a writer, it was read before
		want          time.Duration
	}{
		{name: "no writer", content: ended, how: closed, look: look{still: true}},
		{name: "no writer, and changes go on", content: ended, how: closed, want: time.Second},
		{name: "a writer", content: ended, how: closed, look: look{still: true}, open: true, want: time.Hour},
		{name: "a writer since the beginning", content: ended, look: look{first: true}, open: true, want: time.Hour},
		{name: "a writer of a renamed file", content: ended, how: moved, open: true, want: time.Hour},
		{name: "no newline", content: unended, how: closed, look: look{still: true}, want: time.Minute},
		{name: "nothing in it", how: closed, look: look{still: true}, want: time.Minute},
		{name: "no newline, since the beginning", content: unended, look: look{first: true}},
		{name: "no newline, renamed", content: unended, how: moved, look: look{notified: true}},
		{name: "no newline, of another directory", content: unended, look: look{notified: true}, read: true},
		{name: "no newline, without notifications", content: unended, read: true, want: time.Minute},
		{name: "no newline, a new link", content: unended, how: created, look: look{notified: true}, path: link},
		{name: "no newline, a new file", content: unended, how: created, look: look{notified: true}, want: time.Minute},
	} {
		do(t, os.Remove(path))
		write(t, path, c.content)
		do(t, os.Chtimes(path, written, written))
		if c.open {
			file, err := os.OpenFile(path, os.O_WRONLY, 0)
			do(t, err)
			defer func() { do(t, file.Close()) }()
		}
		if c.path == "" {
			c.path = path
		}
		info, err := os.Stat(c.path)
		do(t, err)
		f := &file{budget: &budget{}}
		if c.read {
			f.stamp = another
		}
		c.look.timing = timing{quiet: time.Second, long: time.Minute}
		c.look.writing = map[string]writing{filepath.Base(c.path): c.how}
		waited := time.Duration(0)
		for _, age := range []time.Duration{0, time.Second - 1, time.Minute - 1, time.Hour - 1} {
			if c.look.now = written.Add(age); f.waits(c.path, info, &c.look) {
				waited = age + 1
			}
		}
		if waited == 1 {
			waited = time.Second
		}
		if waited != c.want {
			t.Errorf("%s: waits for %v, want %v", c.name, waited, c.want)
		}
	}
}

// TestWriters: what notifications say of the files of a directory.
func TestWriters(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	w := newWriters()
	defer w.close()
	w.watch(dir)
	var f *os.File
	for _, step := range []struct {
		name string
		do   func()
		want writing
	}{
		{"created", func() { f, _ = os.Create(path) }, created},
		{"written", func() { _, _ = f.WriteString("x") }, written},
		{"closed", func() { _ = f.Close() }, closed},
		{"emptied", func() { f, _ = os.Create(path) }, written},
		{"closed again", func() { _ = f.Close() }, closed},
		{"replaced", func() { replace(t, path, "y") }, moved},
		{"appended", func() { f, _ = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); _, _ = f.WriteString("x") }, written},
		{"closed after that", func() { _ = f.Close() }, closed},
		{"overflow", func() { w.event(0x4000, "") }, unnotified},
		{"removed", func() { _ = os.Remove(path) }, unnotified},
		{"linked", func() { do(t, os.Symlink("x", path)) }, created},
	} {
		step.do()
		w.update()
		if got := w.files["a.yaml"]; got != step.want || len(w.files) > 1 {
			t.Errorf("%s: %v of %v, want %v", step.name, got, w.files, step.want)
		}
		watcher := &Watcher{notify: &notifier{writers: w}}
		if lost, k := step.name == "overflow", watcher.look(&debounce{}, time.Now()); lost == k.notified {
			t.Errorf("%s: notifications were lost: %v, and are complete: %v", step.name, lost, k.notified)
		}
		w.lost = false // all files are read
	}
}
