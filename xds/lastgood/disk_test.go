package lastgood

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

const fileLimitEnv = "LBD_LASTGOOD_TEST_FILE_LIMIT"

// TestFullDisk limits the size of files, in a process of its own.
func TestFullDisk(t *testing.T) {
	if os.Getenv(fileLimitEnv) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		child.Env = append(os.Environ(), fileLimitEnv+"=1")
		if out, err := child.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(unix.SIGXFSZ)
	synctest.Test(t, onFullDisk)
}

func limitFiles(t *testing.T, bytes uint64) {
	t.Helper()
	var limit unix.Rlimit
	noError(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
	limit.Cur = min(bytes, limit.Max)
	noError(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
}

func onFullDisk(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	c := open(t, dir, &log)
	before := entry("a", "1", "v1")
	c.Put([]resource.Update{before, entry("gone", "1", "v1")})
	pass(soon)
	info, err := os.Stat(filepath.Join(dir, resourcesDirectory, "lbd.db"))
	noError(t, err)

	limitFiles(t, uint64(info.Size()))
	large := entry("large", strings.Repeat("large ", 200_000), "v2")
	c.Put([]resource.Update{large, entry("b", "1", "v2")})
	pass(3 * retryDelay)
	wantAll(t, c, before, entry("gone", "1", "v1"))
	if n := strings.Count(log.String(), "level="); n != 1 || !strings.Contains(log.String(), "cannot write to the store") {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
	if err := c.cache.Flush(); !errors.Is(err, store.ErrCannotWrite) {
		t.Errorf("Flush: %v", err)
	}
	// What comes meanwhile is not lost, and what goes leaves nothing behind.
	c.Put([]resource.Update{entry("b", "2", "v3")})
	c.Put(removed(clusterKey("gone")))
	for i := range 1000 {
		name := fmt.Sprint("name-", i)
		c.Put([]resource.Update{entry(name, "1", "v3")})
		c.Put(removed(clusterKey(name)))
	}
	pass(3 * retryDelay)
	c.cache.mu.Lock()
	if len(c.cache.pending) != 3 {
		t.Errorf("%d resources are pending", len(c.cache.pending))
	}
	c.cache.mu.Unlock()

	limitFiles(t, unix.RLIM_INFINITY)
	pass(retryDelay + soon)
	wantAll(t, c, before, entry("b", "2", "v3"), large)
	if n := strings.Count(log.String(), "level="); n != 2 || !strings.Contains(log.String(), "are on disk again") {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}

	limitFiles(t, uint64(info.Size()))
	c = OpenResources(t.TempDir(), nil)
	c.Put([]resource.Update{large})
	if err := c.Close(); err == nil {
		t.Error("Close returns no error although the write failed")
	}
	limitFiles(t, unix.RLIM_INFINITY)
}
