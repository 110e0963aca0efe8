package file

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// grow commits values of 100 kB under one key until the file has been written again or
// would have been, twice over.
func grow(t *testing.T, s *Store) (largest int64) {
	t.Helper()
	for i := range 40 {
		put(t, s, clusterKey("a"), strings.Repeat(string(rune('a'+i%20)), 100_000))
		largest = max(largest, fileSize(t, s))
	}
	return largest
}

func TestTheFileIsCompacted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, clusterKey("first"), "1")
	largest := grow(t, s)
	if limit := int64(2*100_000 + minGarbage + 200_000); largest > limit {
		t.Errorf("the file had %d bytes, more than %d", largest, limit)
	}
	want := contentsOf(t, s.Snapshot())
	checkReopened(t, s, dir, want)
	if exists(storeFile(dir) + newSuffix) {
		t.Error("an unfinished file is left over")
	}
}

// A compaction that fails costs space, not commits, and is tried again.
func TestACompactionThatFails(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	s := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	noError(t, os.Mkdir(storeFile(dir)+newSuffix, 0o700))
	if largest := grow(t, s); largest < 3_500_000 || strings.Count(log.String(), "keeps growing") != 2 {
		t.Errorf("the file had %d bytes, logged %s", largest, log.String())
	}
	noError(t, os.Remove(storeFile(dir)+newSuffix))
	grow(t, s)
	if size := fileSize(t, s); size > 3_000_000 {
		t.Errorf("the file still has %d bytes", size)
	}
	want := contentsOf(t, s.Snapshot())
	checkReopened(t, s, dir, want)
}

// A deletion frees the space of a disk that was full when the store wanted to compact its file, without another commit.
func TestACompactionIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		unfinished := storeFile(dir) + newSuffix
		noError(t, os.Mkdir(unfinished, 0o700)) // as if there was no space
		grow(t, s)
		update(t, s, func(tx *store.Tx) error { tx.Delete(clusterKey("a")); return nil })
		noError(t, os.Remove(unfinished))
		time.Sleep(compactPeriod + 2*checkInterval)
		synctest.Wait()
		info, err := os.Stat(storeFile(dir))
		noError(t, err)
		if info.Size() > 1000 {
			t.Errorf("the file still has %d bytes", info.Size())
		}
		closeStore(t, s)
	})
}

// The lock is on a file that a compaction replaces: no other store gets in between.
func TestACompactedFileStaysLocked(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, clusterKey("a"), "1")
	stop, ended := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			other, err := Open(dir, Options{})
			if !errors.Is(err, ErrInUse) {
				if err == nil {
					err = errors.Join(errors.New("opened twice"), other.Close())
				}
				ended <- err
				<-stop
				return
			}
		}
	}()
	for range 5 {
		grow(t, s)
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A file that was removed is not made again by a compaction.
func TestALostFileIsNotCompacted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	unfinished := storeFile(dir) + newSuffix
	if err := os.Mkdir(unfinished, 0o700); err != nil { // so that the next compaction is due
		t.Fatal(err)
	}
	grow(t, s)
	noError(t, errors.Join(os.Remove(unfinished), os.Remove(storeFile(dir))))
	inWriter(t, s, func(f *file) {
		f.compactAt = 0
		f.compact(s.Snapshot())
	})
	if exists(storeFile(dir)) {
		t.Error("it is there again")
	}
}

func TestAValueTravelsWithItsEntry(t *testing.T) {
	dir := t.TempDir()
	var commits []store.Commit
	s := open(t, dir, Options{OnCommit: func(c store.Commit) { commits = append(commits, c) }})
	key := clusterKey("a")
	value := func(get func(key resource.Key) (store.Entry, bool)) any {
		e, _ := get(key)
		return e.Value
	}
	update(t, s, func(tx *store.Tx) error {
		err := tx.PutValue(key, []byte("1"), "one")
		if got := value(tx.Get); got != "one" {
			t.Errorf("in the transaction: %v", got)
		}
		return err
	})
	if got := value(commits[0].After.Get); got != "one" {
		t.Errorf("in the commit: %v", got)
	}
	update(t, s, func(tx *store.Tx) error { return tx.PutValue(key, []byte("1"), "another one") })
	if got := value(s.Snapshot().Get); got != "one" {
		t.Errorf("after the same content: %v", got)
	}
	closeStore(t, s)
	if got := value(open(t, dir, Options{}).Snapshot().Get); got != nil {
		t.Errorf("after a restart: %v", got)
	}
}
