package file

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

var noError = must.NoError

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		writeUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

// long reports whether tests should take more time.
func long() bool { return os.Getenv("LBD_TEST_LONG") != "" }

func clusterKey(name string) resource.Key {
	return resource.Key{Type: resource.TypeCluster, Name: name}
}

func assignmentKey(name string) resource.Key {
	return resource.Key{Type: resource.TypeAssignment, Name: name}
}

// begin is the tests' time.
var begin = time.Date(2026, 11, 20, 12, 0, 0, 7, time.UTC)

func open(t *testing.T, dir string, opts Options) *Store {
	t.Helper()
	if opts.Now == nil {
		opts.Now = func() time.Time { return begin }
	}
	s, err := Open(dir, opts)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

func update(t *testing.T, s *Store, fn func(*store.Tx) error) *store.Snapshot {
	t.Helper()
	snapshot, err := s.Update(t.Context(), fn)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	return snapshot
}

func put(t *testing.T, s *Store, key resource.Key, raw string) *store.Snapshot {
	t.Helper()
	return update(t, s, func(tx *store.Tx) error { return tx.Put(key, []byte(raw)) })
}

// contentsOf is a snapshot as a map, with a check of what a snapshot promises.
func contentsOf(t *testing.T, s *store.Snapshot) map[resource.Key]string {
	t.Helper()
	m := map[resource.Key]string{}
	var last *store.Entry
	for entry := range s.All() {
		if last != nil && store.CompareKeys(last.Key, entry.Key) >= 0 {
			t.Errorf("All yields %v after %v", entry.Key, last.Key)
		}
		last = &entry
		if got, found := s.Get(entry.Key); !found || !bytes.Equal(got.Raw, entry.Raw) || !got.Updated.Equal(entry.Updated) {
			t.Errorf("Get(%v) is not what All yields", entry.Key)
		}
		m[entry.Key] = string(entry.Raw)
	}
	if s.Len() != len(m) {
		t.Errorf("Len is %d, All yields %d", s.Len(), len(m))
	}
	var size int64
	for e := range s.All() {
		size += int64(len(store.EncodeKey(e.Key)) + len(e.Raw))
	}
	if size != s.Size() {
		t.Errorf("size is %d, that of the entries %d", s.Size(), size)
	}
	return m
}

func checkContents(t *testing.T, s *store.Snapshot, want map[resource.Key]string) {
	t.Helper()
	if got := contentsOf(t, s); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", brief(got), brief(want))
	}
}

// checkReopened closes a store, and checks the contents of its file.
func checkReopened(t *testing.T, s *Store, dir string, want map[resource.Key]string) {
	t.Helper()
	closeStore(t, s)
	checkContents(t, open(t, dir, Options{}).Snapshot(), want)
}

// checkFiles checks the number of files in a directory.
func checkFiles(t *testing.T, dir string, want int) {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	names = slices.DeleteFunc(names, func(name string) bool { return name == storeFile(dir)+reserveSuffix })
	if len(names) != want {
		t.Errorf("files %v, want %d", names, want)
	}
}

func brief(m map[resource.Key]string) string {
	var b bytes.Buffer
	for _, key := range slices.SortedFunc(maps.Keys(m), store.CompareKeys) {
		fmt.Fprintf(&b, " %v=%.20q", key, m[key])
	}
	return b.String()
}

func storeFile(dir string) string { return filepath.Join(dir, Name) }

// inWriter runs fn in the goroutine that owns the file.
func inWriter(t *testing.T, s *Store, fn func(f *file)) {
	t.Helper()
	update(t, s, func(*store.Tx) error { fn(s.file); return nil })
}

// fileSize is the size of the file up to the last commit, behind a compaction.
func fileSize(t *testing.T, s *Store) (size int64) {
	t.Helper()
	inWriter(t, s, func(f *file) { size = f.end.size })
	return size
}
