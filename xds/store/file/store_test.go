package file

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

var errRefused = errors.New("refused by the function")

// TestUpdate checks what a series of Updates leaves, in memory and after the file
// is opened again.
func TestUpdate(t *testing.T) {
	a, b, c := clusterKey("a"), clusterKey("b"), assignmentKey("a")
	set := func(key resource.Key, raw string) func(*store.Tx) error {
		return func(tx *store.Tx) error { return tx.Put(key, []byte(raw)) }
	}
	remove := func(key resource.Key, found bool) func(*store.Tx) error {
		return func(tx *store.Tx) error {
			if tx.Delete(key) != found {
				return errors.New("Delete does not know what is there")
			}
			return nil
		}
	}
	all := func(fns ...func(*store.Tx) error) func(*store.Tx) error {
		return func(tx *store.Tx) error {
			for _, fn := range fns {
				if err := fn(tx); err != nil {
					return err
				}
			}
			return nil
		}
	}
	fail := func(*store.Tx) error { return errRefused }
	panics := func(*store.Tx) error { panic("no luck") }

	for _, test := range []struct {
		name    string
		updates []func(*store.Tx) error
		want    map[resource.Key]string
		commits int
	}{
		{name: "nothing", updates: []func(*store.Tx) error{all()}},
		{
			name:    "put",
			updates: []func(*store.Tx) error{set(a, "1")},
			want:    map[resource.Key]string{a: "1"}, commits: 1,
		},
		{
			name:    "types do not share names",
			updates: []func(*store.Tx) error{all(set(a, "1"), set(c, "2"), set(b, "3"))},
			want:    map[resource.Key]string{a: "1", c: "2", b: "3"}, commits: 1,
		},
		{
			name:    "replace and delete",
			updates: []func(*store.Tx) error{all(set(a, "1"), set(b, "2")), all(set(a, "3"), remove(b, true), remove(c, false))},
			want:    map[resource.Key]string{a: "3"}, commits: 2,
		},
		{
			name:    "an empty value is a value",
			updates: []func(*store.Tx) error{set(a, "")},
			want:    map[resource.Key]string{a: ""}, commits: 1,
		},
		{
			name:    "the same again is no commit",
			updates: []func(*store.Tx) error{set(a, "1"), set(a, "1")},
			want:    map[resource.Key]string{a: "1"}, commits: 1,
		},
		{
			name:    "there and back is no commit",
			updates: []func(*store.Tx) error{set(a, "1"), all(set(a, "2"), set(b, "1"), set(a, "1"), remove(b, true))},
			want:    map[resource.Key]string{a: "1"}, commits: 1,
		},
		{
			name:    "an error rolls back its own writes",
			updates: []func(*store.Tx) error{set(a, "1"), all(set(a, "2"), set(b, "2"), fail)},
			want:    map[resource.Key]string{a: "1"}, commits: 1,
		},
		{
			name:    "a panic rolls back its own writes, and the store goes on",
			updates: []func(*store.Tx) error{set(a, "1"), all(remove(a, true), panics), set(b, "2")},
			want:    map[resource.Key]string{a: "1", b: "2"}, commits: 2,
		},
		{
			name:    "delete all",
			updates: []func(*store.Tx) error{all(set(a, "1"), set(b, "2")), all(remove(a, true), remove(b, true))},
			commits: 2,
		},
	} {
		for _, dir := range []string{"", t.TempDir()} {
			t.Run(test.name+map[bool]string{true: ", in memory", false: ", on disk"}[dir == ""], func(t *testing.T) {
				commits := 0
				s := open(t, dir, Options{OnCommit: func(store.Commit) { commits++ }})
				for _, fn := range test.updates {
					_, err := s.Update(t.Context(), fn)
					var panicked *store.PanicError
					if err != nil && !errors.Is(err, errRefused) && !errors.As(err, &panicked) {
						t.Fatal(err)
					}
				}
				checkContents(t, s.Snapshot(), test.want)
				closeStore(t, s)
				if commits != test.commits {
					t.Errorf("%d commits, want %d", commits, test.commits)
				}
				if dir != "" {
					checkContents(t, open(t, dir, Options{}).Snapshot(), test.want)
				}
			})
		}
	}
}

func TestSizeOfValues(t *testing.T) {
	s := open(t, "", Options{})
	for size, want := range map[int]error{store.MaxValueSize: nil, store.MaxValueSize + 1: store.ErrTooLarge} {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(clusterKey("large"), make([]byte, size)) })
		if entry, _ := s.Snapshot().Get(clusterKey("large")); !errors.Is(err, want) || err == nil && len(entry.Raw) != size {
			t.Errorf("%d bytes: %v, %d are stored", size, err, len(entry.Raw))
		}
	}
}

func TestOpenMakesFilesThatOthersCannotRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	put(t, open(t, dir, Options{}), clusterKey("a"), "1")
	for path, want := range map[string]fs.FileMode{dir: fs.ModeDir | 0o750, storeFile(dir): 0o600} {
		info, err := os.Stat(path)
		noError(t, err)
		if info.Mode() != want {
			t.Errorf("%s: mode %v, want %v", path, info.Mode(), want)
		}
	}
	checkFiles(t, dir, 1)
}

// A process that is being started has copies of all descriptors until its exec. Such a copy does not
// keep a closed store locked.
func TestCloseUnlocksWithCopiesOfTheDescriptor(t *testing.T) {
	dir := t.TempDir()
	st := open(t, dir, Options{})
	duplicate, err := syscall.Dup(int(st.file.os.Fd()))
	noError(t, err)
	t.Cleanup(func() { noError(t, syscall.Close(duplicate)) })
	closeStore(t, st)
	closeStore(t, open(t, dir, Options{}))
}

func TestSecondOpenFailsAtOnce(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, Options{})
	put(t, first, clusterKey("a"), "1")
	_, err := Open(dir, Options{})
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	put(t, first, clusterKey("b"), "2")
	closeStore(t, first)
	checkContents(t, open(t, dir, Options{}).Snapshot(), map[resource.Key]string{clusterKey("a"): "1", clusterKey("b"): "2"})
}

// Of several that start at the same time, one gets the directory, the others an error.
func TestOpensAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	type result struct {
		s   *Store
		err error
	}
	results := make(chan result)
	for range 8 {
		go func() {
			s, err := Open(dir, Options{})
			results <- result{s, err}
		}()
	}
	var opened []*Store
	for range 8 {
		switch r := <-results; {
		case r.err == nil:
			opened = append(opened, r.s)
		case !errors.Is(r.err, ErrInUse):
			t.Errorf("neither opened nor in use: %v", r.err)
		}
	}
	if len(opened) > 1 {
		t.Fatalf("%d have it open", len(opened))
	}
	for _, s := range opened {
		closeStore(t, s)
	}
	put(t, open(t, dir, Options{}), clusterKey("a"), "1")
}

func TestOpenCannot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	noError(t, os.WriteFile(file, nil, 0o600))
	if _, err := Open(file, Options{}); !errors.Is(err, fs.ErrExist) && !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file as directory: %v", err)
	}
	dir := t.TempDir()
	noError(t, os.Mkdir(storeFile(dir), 0o700))
	var damaged *DamagedError
	if _, err := Open(dir, Options{}); err == nil || errors.As(err, &damaged) {
		t.Errorf("a directory as file: %v", err)
	}
}

// A start that was killed before the file had its name leaves no trace.
func TestOpenAfterAnUnfinishedCreation(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.WriteFile(storeFile(dir)+".new", []byte("half a page"), 0o600))
	s := open(t, dir, Options{})
	put(t, s, clusterKey("a"), "1")
	checkFiles(t, dir, 1)
}

// Two starts found no file; the slower must not replace the faster one's.
func TestWriteNamedLeavesWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, clusterKey("a"), "1")
	noError(t, writeNamed(storeFile(dir), &store.Snapshot{}))
	checkFiles(t, dir, 1)
	checkReopened(t, s, dir, map[resource.Key]string{clusterKey("a"): "1"})
}

// A small change of a large value writes little, and is there after the next start.
func TestSmallChangesOfLargeValues(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	raw := bytes.Repeat([]byte("0123456789"), 10_000)
	put(t, s, clusterKey("a"), string(raw))
	size := func() (n int64) {
		inWriter(t, s, func(f *file) { n = f.end.size })
		return n
	}
	before := size()
	const changes = 20
	for i := range changes {
		at := i * 4999
		switch raw[at] = 'x'; i % 3 {
		case 1:
			raw = slices.Insert(raw, at, 'y')
		case 2:
			raw = slices.Delete(raw, at, at+1)
		}
		put(t, s, clusterKey("a"), string(raw))
	}
	if n := (size() - before) / changes; n > 200 {
		t.Errorf("%d bytes for a change", n)
	}
	want := map[resource.Key]string{clusterKey("a"): string(raw)}
	s = reopen(t, s, dir)
	checkContents(t, s.Snapshot(), want)
	update(t, s, func(tx *store.Tx) error {
		tx.Delete(clusterKey("a"))
		return tx.Put(clusterKey("a"), raw[1:])
	})
	want[clusterKey("a")] = string(raw[1:])
	s = reopen(t, s, dir)
	checkContents(t, s.Snapshot(), want)
	update(t, s, func(tx *store.Tx) error {
		tx.Delete(clusterKey("a"))
		return nil
	})
	put(t, s, clusterKey("a"), string(raw))
	want[clusterKey("a")] = string(raw)
	before = size()
	inWriter(t, s, func(f *file) { f.patched = 64*f.end.size + maxPatched })
	if after := size(); after >= before {
		t.Errorf("what takes long to read is not compacted: %d bytes after %d", after, before)
	}
	checkContents(t, reopen(t, s, dir).Snapshot(), want)
}

func reopen(t *testing.T, s *Store, dir string) *Store {
	t.Helper()
	closeStore(t, s)
	return open(t, dir, Options{})
}

// A file of the version before is read, gets no patches, which that version does not know, and becomes one of this
// version when it is compacted.
func TestOlderSchema(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	raw := bytes.Repeat([]byte("0123456789"), 10_000)
	put(t, s, clusterKey("a"), string(raw))
	closeStore(t, s)
	data, err := os.ReadFile(storeFile(dir))
	noError(t, err)
	c, err := readLog(bytes.NewReader(data), int64(len(data)))
	noError(t, err)
	older, start := headerOf(wholeVersion, 0)
	noError(t, os.WriteFile(storeFile(dir), older, fileMode))
	f, err := os.OpenFile(storeFile(dir), os.O_RDWR, fileMode)
	noError(t, err)
	w := newWriter(f, start)
	for e := range c.snapshot.All() {
		w.put(&e, nil)
	}
	noError(t, w.commit(c.snapshot.Index()))
	noError(t, f.Close())

	s = open(t, dir, Options{})
	put(t, s, clusterKey("a"), string(raw[1:]))
	inWriter(t, s, func(f *file) {
		if !f.whole || f.patched > 0 {
			t.Error("a file of the older version has a patch")
		}
	})
	s = reopen(t, s, dir)
	for i := range 30 {
		put(t, s, clusterKey("a"), string(raw[i:]))
	}
	inWriter(t, s, func(f *file) {
		if f.whole || f.patched == 0 {
			t.Error("the file is not of this version after its compaction")
		}
	})
	checkContents(t, reopen(t, s, dir).Snapshot(), map[resource.Key]string{clusterKey("a"): string(raw[29:])})
}
