package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// tryPut puts a value and returns the error of the Update.
func tryPut(t *testing.T, s *Store, name, raw string) error {
	t.Helper()
	_, err := s.Update(t.Context(), func(tx *Tx) error { return tx.Put(clusterKey(name), []byte(raw)) })
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
				var reported []error
				s := open(t, dir, Options{OnLost: func(err error) { reported = append(reported, err) }})
				put(t, s, clusterKey("a"), "1")
				before := s.Snapshot()
				if err := c.lose(dir); err != nil {
					t.Fatal(err)
				}
				var lost *LostError
				for _, raw := range []string{"2", "1"} { // a change, and what memory holds already
					if err := tryPut(t, s, "a", raw); !errors.Is(err, ErrCannotWrite) || !errors.As(err, &lost) {
						t.Errorf("put %s: %v", raw, err)
					}
				}
				// Lost while the commit ran.
				if err := s.file.flush(before); !errors.As(err, &lost) {
					t.Errorf("flush: %v", err)
				}
				if s.Snapshot() != before {
					t.Error("a refused write is visible")
				}
				if !errors.As(s.Err(), &lost) || len(reported) != 1 {
					t.Errorf("Err: %v, reported: %v", s.Err(), reported)
				}
				if c.restore == nil {
					return
				}
				if err := c.restore(dir); err != nil {
					t.Fatal(err)
				}
				time.Sleep(checkInterval)
				synctest.Wait()
				if s.Err() != nil || len(reported) != 2 || reported[1] != nil {
					t.Errorf("Err: %v, reported: %v", s.Err(), reported)
				}
				put(t, s, clusterKey("b"), "3")
				closeStore(t, s)
				again := open(t, dir, Options{})
				if got := brief(contents(t, again.Snapshot())); !strings.Contains(got, "1") || !strings.Contains(got, "3") || strings.Contains(got, "2") {
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
		if err := os.Remove(storeFile(dir)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkInterval)
		synctest.Wait()
		if lost := (&LostError{}); !errors.As(s.Err(), &lost) || !errors.Is(lost, os.ErrNotExist) {
			t.Errorf("Err: %v", s.Err())
		}
	})
}

// The disk may hold a write whose commit failed: the value from before it is not
// durable until it is written again.
func TestTheSameValueIsWrittenAgainAfterAFailedCommit(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, clusterKey("a"), "1")
	s.file.unsure[clusterKey("a")] = struct{}{} // as a commit leaves it whose fsync failed
	s.file.broken = errors.New("the disk is gone")
	if err := tryPut(t, s, "a", "1"); !errors.Is(err, ErrCannotWrite) {
		t.Errorf("while the disk is gone: %v", err)
	}
	s.file.broken = nil
	if err := tryPut(t, s, "a", "1"); err != nil || len(s.file.unsure) != 0 {
		t.Errorf("%v, unsure: %v", err, s.file.unsure)
	}
}
