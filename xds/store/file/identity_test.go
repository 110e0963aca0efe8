package file

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// tryPut puts a value of one key and returns the error of the Update.
func tryPut(t *testing.T, s *Store, raw string) error {
	t.Helper()
	_, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(clusterKey("a"), []byte(raw)) })
	return err
}

func TestAFileThatLostItsNameTakesNoWrites(t *testing.T) {
	for _, c := range []struct {
		name    string
		lose    func(dir string) error
		restore func(dir string) error // nil: it cannot come back
	}{
		{name: "removed", lose: func(dir string) error { return os.Remove(storeFile(dir)) }},
		{
			name:    "renamed and moved back",
			lose:    func(dir string) error { return os.Rename(storeFile(dir), storeFile(dir)+".aside") },
			restore: func(dir string) error { return os.Rename(storeFile(dir)+".aside", storeFile(dir)) },
		},
		{
			name: "replaced by a copy, and the original put back",
			lose: func(dir string) error {
				data, err := os.ReadFile(storeFile(dir))
				return errors.Join(err, os.Rename(storeFile(dir), storeFile(dir)+".aside"), os.WriteFile(storeFile(dir), data, 0o600))
			},
			restore: func(dir string) error { return os.Rename(storeFile(dir)+".aside", storeFile(dir)) },
		},
		{
			name:    "in a directory that was renamed",
			lose:    func(dir string) error { return os.Rename(dir, dir+".aside") },
			restore: func(dir string) error { return os.Rename(dir+".aside", dir) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "data")
				var mu sync.Mutex // the writer reports what its ticker finds beside the test
				var reported []error
				s := open(t, dir, Options{OnLost: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					reported = append(reported, err)
				}})
				reports := func() []error {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(reported)
				}
				put(t, s, clusterKey("a"), "1")
				before := s.Snapshot()
				noError(t, c.lose(dir))
				var lost *LostError
				for _, raw := range []string{"2", "1"} { // a change, and what memory holds already
					if err := tryPut(t, s, raw); !errors.Is(err, store.ErrCannotWrite) || !errors.As(err, &lost) {
						t.Errorf("put %s: %v", raw, err)
					}
				}
				if s.Snapshot() != before {
					t.Error("a refused write is visible")
				}
				if got := reports(); !errors.As(s.Err(), &lost) || len(got) != 1 {
					t.Errorf("Err: %v, reported: %v", s.Err(), got)
				}
				if c.restore == nil {
					return
				}
				noError(t, c.restore(dir))
				time.Sleep(checkInterval)
				synctest.Wait()
				if got := reports(); s.Err() != nil || len(got) != 2 || got[1] != nil {
					t.Errorf("Err: %v, reported: %v", s.Err(), got)
				}
				put(t, s, clusterKey("b"), "3")
				closeStore(t, s)
				again := open(t, dir, Options{})
				if got := brief(contentsOf(t, again.Snapshot())); !strings.Contains(got, "1") || !strings.Contains(got, "3") || strings.Contains(got, "2") {
					t.Errorf("on disk: %s", got)
				}
			})
		})
	}
}

func TestALostFileIsNoticedWithoutAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		time.Sleep(10 * checkInterval)
		synctest.Wait()
		if err := s.Err(); err != nil {
			t.Fatalf("while it is there: %v", err)
		}
		noError(t, os.Remove(storeFile(dir)))
		time.Sleep(checkInterval)
		synctest.Wait()
		if lost := (&LostError{}); !errors.As(s.Err(), &lost) || !errors.Is(lost, os.ErrNotExist) {
			t.Errorf("Err: %v", s.Err())
		}
	})
}

// The disk may hold a write whose commit failed. Before the same value as before is
// confirmed, that write is removed.
func TestTheSameValueIsConfirmedOnlyWithoutAFailedWriteBehindIt(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, clusterKey("a"), "1")
	var sound position
	inWriter(t, s, func(f *file) { sound = f.end })
	put(t, s, clusterKey("a"), "2")
	s.current.Store(mustRead(t, dir, sound.size)) // as if the commit had failed when all was written
	readOnly, err := os.Open(storeFile(dir))
	noError(t, err)
	var writable *os.File
	inWriter(t, s, func(f *file) {
		f.end, f.torn = sound, true
		f.acknowledge()
		writable, f.os = f.os, readOnly
	})
	if err := tryPut(t, s, "1"); !errors.Is(err, store.ErrCannotWrite) {
		t.Errorf("while it cannot be removed: %v", err)
	}
	inWriter(t, s, func(f *file) { f.os = writable })
	if err := errors.Join(tryPut(t, s, "1"), readOnly.Close()); err != nil {
		t.Error(err)
	}
	checkReopened(t, s, dir, map[resource.Key]string{clusterKey("a"): "1"})
}

// mustRead reads the first bytes of the file as if they had been all.
func mustRead(t *testing.T, dir string, size int64) *store.Snapshot {
	t.Helper()
	data, err := os.ReadFile(storeFile(dir))
	noError(t, err)
	header, _ := encodeHeader(size)
	c, err := readLog(bytes.NewReader(append(header, data[headerSize:size]...)), size)
	noError(t, err)
	return c.snapshot
}
