package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
)

func TestFilesAreReadUpToAThousand(t *testing.T) {
	dir := t.TempDir()
	for i := range MaxFiles {
		write(t, filepath.Join(dir, fmt.Sprintf("%04d.yaml", i)), fmt.Sprintf("cluster_name: c%04d", i))
	}
	w := start(t, dir, quick)
	good := func(want int) *Scan {
		t.Helper()
		s := <-w.scans
		n := 0
		for _, f := range s.Files {
			if f.Bundle != nil {
				n++
			}
		}
		if n != want || (s.Over != nil) != (len(s.Files) > MaxFiles) {
			t.Fatalf("%d of %d files are good, want %d; %v", n, len(s.Files), want, s.Over)
		}
		return s
	}
	good(MaxFiles)

	// One more, and the last is not read any more.
	stage := filepath.Join(t.TempDir(), "stage")
	write(t, stage, "cluster_name: first")
	do(t, os.Rename(stage, filepath.Join(dir, "0000a.yaml")))
	s := good(MaxFiles)
	want := "!.: read " + dir + ": holds 1001 files, of at most 1000: those from 0999.yaml on are not read\n" +
		"!0999.yaml: is not read: 1000 files come before it by name, and no more are read"
	if got := summary(s); !strings.HasSuffix(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got[max(0, len(got)-300):], want)
	}
	do(t, os.Remove(filepath.Join(dir, "0000.yaml")))
	good(MaxFiles)
}

func TestFilesAreReadUpTo32MiB(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	body := `{"resources":[]` + strings.Repeat(" ", MaxFileBytes-16) + "}"
	write(t, path, body)
	w := start(t, dir, quick)
	w.expect("")
	replace(t, path, body+" ")
	w.expect("!a.json: read " + path + ": is larger than 33554432 bytes")
}

// File systems' clocks are coarse: what is written twice within one tick has one
// time of modification.
func TestAFileThatWasFreshIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f := &file{budget: &budget{}, decoding: decode.Options{Origin: decode.ByHand, Bare: true}}
	read := func(content string, now time.Time) string {
		t.Helper()
		write(t, path, content)
		do(t, os.Chtimes(path, begin, begin))
		info, err := os.Stat(path)
		do(t, err)
		f.read(path, info, &look{now: now})
		do(t, f.state.Err)
		return f.state.Bundle.Items[0].Key.Name
	}
	for _, c := range []struct {
		content string
		after   time.Duration
		want    string
	}{
		{"cluster_name: a", freshness - 1, "a"},
		{"cluster_name: b", freshness - 1, "b"},
		{"cluster_name: c", freshness, "c"},
		{"cluster_name: d", freshness, "c"}, // no notification, and no clock is that coarse
	} {
		if got := read(c.content, begin.Add(c.after)); got != c.want {
			t.Errorf("%q after %v: %s, want %s", c.content, c.after, got, c.want)
		}
	}
}

// What cannot be read is not read again because another file waits for its writer.
func TestAFileThatIsTooLargeIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, assignment("a", "h"))
	do(t, os.Truncate(path, MaxFileBytes+1))
	w := &Watcher{notify: &notifier{writers: newWriters()}, directory: directory{budget: &budget{}, path: dir, files: map[string]*file{}}}
	w.directory.decoding = decode.Options{Origin: decode.ByHand, Bare: true}
	seen := readListing(dir, nil)
	u := &debounce{}
	for i, step := range []struct{ changed, bad bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		if step.changed {
			u.change(time.Now(), nil)
		}
		w.directory.read(seen, w.look(u, time.Now()), nil)
		u.over(time.Now(), seen)
		if f := w.directory.files["a.yaml"].state; (f.Err != nil) != step.bad {
			t.Errorf("look %d: %v", i, f.Err)
		}
		write(t, path, assignment("a", "h")) // after the listing
	}
}

// Far more files than are read are counted, not listed: each would have a state.
func TestVeryManyFilesAreCounted(t *testing.T) {
	dir := t.TempDir()
	for i := range maxListed + 100 {
		write(t, filepath.Join(dir, fmt.Sprintf("%04d.yaml", i)), "")
	}
	d := &directory{budget: &budget{ctx: t.Context()}, path: dir, files: map[string]*file{"2050.yaml": {}}}
	s := d.read(readListing(dir, d.files), &look{}, nil)
	if len(s.Files) != maxListed+1 || s.Files["2050.yaml"] == nil || s.Over == nil || !strings.Contains(s.Over.Error(), "holds 2100 files") {
		t.Errorf("%d files are listed: %v", len(s.Files), s.Over)
	}
}
