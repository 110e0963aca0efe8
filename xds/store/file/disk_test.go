package file

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// refusesUntilThereIsSpace is a store's life on a disk that fills up and is
// cleaned: fill leaves no space, free gives it back.
func refusesUntilThereIsSpace(t *testing.T, dir string, fill, free func()) {
	t.Helper()
	commits := 0
	s := open(t, dir, Options{OnCommit: func(store.Commit) { commits++ }})
	put(t, s, clusterKey("old"), "0")
	before := s.Snapshot()
	large := strings.Repeat("large ", 200_000)

	fill()
	for range 3 {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error {
			tx.Delete(clusterKey("old"))
			return tx.Put(clusterKey("refused"), []byte(large))
		})
		if !errors.Is(err, store.ErrCannotWrite) {
			t.Fatalf("on a full disk: %v", err)
		}
	}
	t.Logf("refused with: %v", func() error {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(clusterKey("refused"), []byte(large)) })
		return err
	}())
	if s.Snapshot() != before || commits != 1 {
		t.Error("a refused push left something")
	}
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
		if entry, found := tx.Get(clusterKey("old")); !found || string(entry.Raw) != "0" {
			return errors.New("it reads something else")
		}
		return nil
	}); err != nil {
		t.Errorf("reading on a full disk: %v", err)
	}

	free()
	put(t, s, clusterKey("new"), large)
	want := map[resource.Key]string{clusterKey("old"): "0", clusterKey("new"): large}
	checkContents(t, s.Snapshot(), want)
	checkReopened(t, s, dir, want)
}

// tmpfs mounts a small file system.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("TestFileWithoutSpace tests what is possible without a mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	})
	return mount
}

// TestDiskWithoutSpace runs on a small file system of its own, where it may.
func TestDiskWithoutSpace(t *testing.T) {
	mount := tmpfs(t, "4m")
	filler := filepath.Join(mount, "filler")
	refusesUntilThereIsSpace(t, filepath.Join(mount, "data"), func() {
		if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("filling: %v", err)
		}
	}, func() {
		noError(t, os.Remove(filler))
	})

	// A store that cannot even begin leaves nothing that looks like damage.
	if err := os.WriteFile(filler, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling: %v", err)
	}
	dir := filepath.Join(mount, "other")
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Skipf("no space for a directory either: %v", err)
	}
	if _, err := Open(dir, Options{}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Open on a full disk: %v", err)
	}
	checkFiles(t, dir, 0)
	noError(t, os.Remove(filler))
	put(t, open(t, dir, Options{}), clusterKey("a"), "1")
}

// TestDeletionsOfFullDisk: nothing can be put, also not again and again, and deletions free the disk.
func TestDeletionsOfFullDisk(t *testing.T) {
	mount := tmpfs(t, "16m")
	dir := filepath.Join(mount, "data")
	s := open(t, dir, Options{})
	large := strings.Repeat("large ", 200_000) // 1.2 MB
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, s, clusterKey(name), large)
	}
	if err := os.WriteFile(filepath.Join(mount, "filler"), make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling: %v", err)
	}
	before := fileSize(t, s)
	history := strings.Repeat("h", 4000)
	for _, name := range []string{"a", "b", "c", "d"} {
		for i := range 3 {
			value := large
			if name != "a" {
				value = strconv.Itoa(i) // there is no space for another reserve
			}
			if _, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(clusterKey("refused"), []byte(value)) }); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("a push on a full disk: %v", err)
			}
		}
		update(t, s, func(tx *store.Tx) error {
			tx.Delete(clusterKey(name))
			return tx.Put(clusterKey("history of "+name), []byte(history))
		})
	}
	if after := fileSize(t, s); after > before/10 {
		t.Errorf("the file had %d bytes, and has %d", before, after)
	}
	put(t, s, clusterKey("refused"), large)
	checkReopened(t, s, dir, contentsOf(t, s.Snapshot()))
}

// TestPushesLeaveTheReserve: also a push that removes entries of the history.
func TestPushesLeaveTheReserve(t *testing.T) {
	mount := tmpfs(t, "16m")
	s := open(t, filepath.Join(mount, "data"), Options{})
	for _, name := range []string{"history of a", "history of b"} {
		put(t, s, clusterKey(name), "1")
	}
	put(t, s, clusterKey("a"), strings.Repeat("large ", 100_000))
	if err := os.WriteFile(filepath.Join(mount, "filler"), make([]byte, 16<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("filling: %v", err)
	}
	if _, err := s.Update(t.Context(), func(tx *store.Tx) error {
		tx.Delete(clusterKey("history of a"))
		tx.Delete(clusterKey("history of b"))
		return tx.Put(clusterKey("refused"), []byte(strings.Repeat("p", 1_000_000)))
	}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a push on a full disk: %v", err)
	}
	update(t, s, func(tx *store.Tx) error {
		tx.Delete(clusterKey("a"))
		return tx.Put(clusterKey("history of a"), []byte(strings.Repeat("h", 9000)))
	})
}

const fileLimitEnv = "LBD_STORE_TEST_FILE_LIMIT"

// TestFileWithoutSpace limits how large files may grow. The limit is the whole
// process's, so it has one of its own.
func TestFileWithoutSpace(t *testing.T) {
	if os.Getenv(fileLimitEnv) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFileWithoutSpace$", "-test.v")
		child.Env = append(os.Environ(), fileLimitEnv+"=1")
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "refused with: ") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(unix.SIGXFSZ)
	dir := t.TempDir()
	limit := func(bytes uint64) {
		var limit unix.Rlimit
		noError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
		limit.Cur = min(bytes, limit.Max)
		noError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	}
	refusesUntilThereIsSpace(t, dir, func() {
		info, err := os.Stat(storeFile(dir))
		noError(t, err)
		limit(uint64(info.Size()))
	}, func() { limit(unix.RLIM_INFINITY) })
}

func TestDamagedFileThatCannotBeSetAside(t *testing.T) {
	// Not even root can rename a file to a name that is too long.
	path := filepath.Join(t.TempDir(), strings.Repeat("d", 255))
	noError(t, os.WriteFile(path, nil, 0o600))
	err := setAside(path, damage{error: errRefused}, begin)
	var report *DamagedError
	if !errors.As(err, &report) || report.SetAside != "" || !errors.Is(err, errRefused) || !errors.Is(err, syscall.ENAMETOOLONG) {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), "could not be set aside") || !exists(path) {
		t.Errorf("got %v", err)
	}
}
