package files

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/decode"
)

// withoutDescriptors runs f while the process can open no file.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var limit syscall.Rlimit
	do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 1
	do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none))
	defer func() { do(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()
	f()
}

// TestAShortageChangesNothing: files that cannot be read for want of descriptors hold
// what they held and are not bad; what changed meanwhile is read afterwards.
func TestAShortageChangesNothing(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), assignment("a", "h"))
	write(t, filepath.Join(dir, "b.yaml"), assignment("b", "h"))
	write(t, filepath.Join(elsewhere, "a.yaml"), assignment("a", "other"))
	w := start(t, dir, timing{quiet: 10 * time.Millisecond, most: 100 * time.Millisecond, rescan: 50 * time.Millisecond})
	w.expect("ClusterLoadAssignment/a@a.yaml=h:80\nClusterLoadAssignment/b@b.yaml=h:80")
	withoutDescriptors(t, func() {
		do(t, os.Rename(filepath.Join(elsewhere, "a.yaml"), filepath.Join(dir, "a.yaml")))
		do(t, os.Remove(filepath.Join(dir, "b.yaml")))
		time.Sleep(300 * time.Millisecond) // the watcher tries several times; more would tell no more
	})
	w.expect("ClusterLoadAssignment/a@a.yaml=other:80")
}

// TestAFileInAShortage: the same where the directory can be read, and one of its files
// cannot. A file that was never read is bad until it is.
func TestAFileInAShortage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, assignment("a", "h"))
	d := &directory{budget: &budget{}, path: dir, files: map[string]*file{}, decoding: decode.Options{Origin: decode.ByHand, Bare: true}}
	now := time.Now().Add(time.Hour)
	d.read(readListing(dir, nil), &look{now: now}, nil)
	before := *d.files["a.yaml"]
	write(t, path, assignment("a", "other"))
	write(t, filepath.Join(dir, "new.yaml"), assignment("new", "h"))
	seen := readListing(dir, nil)
	withoutDescriptors(t, func() { d.read(seen, &look{now: now}, nil) })
	a, fresh := d.files["a.yaml"], d.files["new.yaml"]
	if a.state != before.state || a.state.Err != nil || !d.short() {
		t.Errorf("a file that cannot be read: %+v", a)
	}
	if fresh.state.Err == nil || fresh.state.Bundle != nil {
		t.Errorf("a file that was never read: %+v", fresh)
	}
	d.read(seen, &look{now: now}, nil)
	if a.state == before.state || fresh.state.Bundle == nil || fresh.state.Err != nil || d.short() {
		t.Errorf("after the shortage: %+v, %+v", a, fresh)
	}
}
