package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// together runs fns as one group: the writer finds all of them waiting when it is
// done with another Update. It returns their errors.
func together(t *testing.T, s *Store, ctxs map[int]context.Context, fns ...func(*store.Tx) error) []error {
	t.Helper()
	running, gate := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = s.Update(t.Context(), func(*store.Tx) error {
			close(running)
			<-gate
			return nil
		})
	}()
	<-running
	errs := make([]error, len(fns))
	done := make(chan struct{}, len(fns))
	for i, fn := range fns {
		ctx := t.Context()
		if own, found := ctxs[i]; found {
			ctx = own
		}
		go func() {
			_, errs[i] = s.Update(ctx, fn)
			done <- struct{}{}
		}()
		synctest.Wait() // it waits for the writer, behind those before it
	}
	close(gate)
	for range fns {
		<-done
	}
	return errs
}

func TestWhatWaitsIsCommittedTogether(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		synctest.Test(t, func(t *testing.T) {
			var commits []store.Commit
			s := open(t, dir, Options{OnCommit: func(c store.Commit) { commits = append(commits, c) }})
			want := map[resource.Key]string{}
			var fns []func(*store.Tx) error
			for i := range 100 {
				key := clusterKey(fmt.Sprint(i))
				want[key] = "1"
				fns = append(fns, func(tx *store.Tx) error { return tx.Put(key, []byte("1")) })
			}
			noError(t, errors.Join(together(t, s, nil, fns...)...))
			if len(commits) != 1 || len(commits[0].Changed) != 100 {
				t.Errorf("%d commits", len(commits))
			}
			checkContents(t, s.Snapshot(), want)
			closeStore(t, s)
			if dir != "" {
				checkContents(t, open(t, dir, Options{}).Snapshot(), want)
			}
		})
	}
}

func TestUpdatesOfAGroupSeeThoseBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "", Options{})
		put(t, s, clusterKey("old"), "0")
		a, b := clusterKey("a"), clusterKey("b")
		see := func(tx *store.Tx, want string) error {
			var seen []string
			for entry := range tx.All() {
				got, found := tx.Get(entry.Key)
				if !found || string(got.Raw) != string(entry.Raw) {
					return fmt.Errorf("Get and All differ about %v", entry.Key)
				}
				seen = append(seen, entry.Key.Name+"="+string(entry.Raw))
			}
			if got := strings.Join(seen, " "); got != want {
				return fmt.Errorf("saw %q, want %q", got, want)
			}
			return nil
		}
		cancelled, cancel := context.WithCancel(t.Context())
		errs := together(t, s, map[int]context.Context{3: cancelled},
			func(tx *store.Tx) error {
				return errors.Join(see(tx, "old=0"), tx.Put(a, []byte("1")), see(tx, "a=1 old=0"))
			},
			func(tx *store.Tx) error {
				tx.Delete(clusterKey("old"))
				return errors.Join(see(tx, "a=1"), tx.Put(a, []byte("2")), see(tx, "a=2"), errRefused)
			},
			func(tx *store.Tx) error {
				cancel() // the next is in the group, but has not run
				return errors.Join(see(tx, "a=1 old=0"), tx.Put(b, []byte("3")))
			},
			func(tx *store.Tx) error { return errors.New("ran although it was cancelled") },
			func(tx *store.Tx) error {
				if !tx.Delete(a) {
					return errors.New("a is not there")
				}
				return see(tx, "b=3 old=0")
			},
		)
		if errs[0] != nil || !errors.Is(errs[1], errRefused) || errs[2] != nil || !errors.Is(errs[3], context.Canceled) || errs[4] != nil {
			t.Errorf("got %v", errs)
		}
		if errs[1].Error() != errRefused.Error() {
			t.Error(errs[1])
		}
		checkContents(t, s.Snapshot(), map[resource.Key]string{clusterKey("old"): "0", b: "3"})
	})
}

func TestUpdateLeavesTheQueueWhenCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "", Options{})
		gate, running := make(chan struct{}), make(chan struct{})
		first := make(chan error)
		go func() {
			_, err := s.Update(t.Context(), func(*store.Tx) error { close(running); <-gate; return nil })
			first <- err
		}()
		<-running
		ctx, cancel := context.WithCancel(t.Context())
		second := make(chan error)
		go func() {
			_, err := s.Update(ctx, func(*store.Tx) error { return errors.New("it ran") })
			second <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) { // while the first still runs
			t.Errorf("got %v", err)
		}
		close(gate)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

func TestCloseWaitsForWhatRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		gate, running := make(chan struct{}), make(chan struct{})
		result := make(chan error, 2)
		go func() {
			_, err := s.Update(t.Context(), func(tx *store.Tx) error {
				close(running)
				<-gate
				return tx.Put(clusterKey("a"), []byte("1"))
			})
			result <- err
		}()
		<-running
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("Close did not wait: %v", err)
		default:
		}
		if _, err := s.Update(t.Context(), func(*store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Update while closing: %v", err)
		}
		close(gate)
		if err := errors.Join(<-result, <-closed); err != nil {
			t.Error(err)
		}
		checkContents(t, open(t, dir, Options{}).Snapshot(), map[resource.Key]string{clusterKey("a"): "1"})
	})
}

// A commit that fails takes with it the Updates that may have seen its writes, and
// nothing else.
func TestAFailedCommitIsAsIfItHadNeverBeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir, Options{})
		put(t, s, clusterKey("old"), "0")
		before := s.Snapshot()
		var writable *os.File
		readOnly, err := os.Open(storeFile(dir))
		noError(t, err)
		errs := together(t, s, nil,
			func(*store.Tx) error { return nil },
			func(*store.Tx) error { return errRefused },
			func(tx *store.Tx) error {
				writable, s.file.os = s.file.os, readOnly // this is the writer's goroutine
				return tx.Put(clusterKey("a"), []byte("1"))
			},
			func(*store.Tx) error { return nil },
			func(*store.Tx) error { return errRefused },
		)
		if errs[0] != nil || !errors.Is(errs[1], errRefused) {
			t.Errorf("before the write: %v", errs[:2])
		}
		for _, err := range errs[2:] {
			if !errors.Is(err, store.ErrCannotWrite) || !errors.Is(err, syscall.EBADF) {
				t.Errorf("the write and what came after: %v", err)
			}
		}
		if s.Snapshot() != before {
			t.Error("the snapshot changed")
		}
		inWriter(t, s, func(f *file) {
			if !f.torn {
				t.Error("the file is not known to be in doubt")
			}
			f.os = writable
			// All of the refused write has reached the disk all the same.
			w := newWriter(f.os, f.end)
			w.put(&store.Entry{Key: clusterKey("a"), Raw: []byte("1"), Updated: begin}, nil)
			if err := errors.Join(w.commit(s.Snapshot().Index()+1), readOnly.Close()); err != nil {
				t.Error(err)
			}
		})
		want := map[resource.Key]string{clusterKey("old"): "0"}
		for _, next := range []string{"", "b"} {
			if next != "" {
				put(t, s, clusterKey(next), "2")
				want[clusterKey(next)] = "2"
			}
			closeStore(t, s)
			s = open(t, dir, Options{})
			checkContents(t, s.Snapshot(), want)
		}
	})
}
