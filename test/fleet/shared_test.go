package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/test/storetest"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

// opener opens a store of the same fleet each time.
type opener func(onCommit func(store.Commit)) store.Store

// TestShared checks what stores of one fleet guarantee each other.
func TestShared(t *testing.T) {
	m := startMember(t)
	for name, test := range map[string]func(*testing.T, opener){
		"Commits": sharedCommits, "Increments": sharedIncrements, "Large": sharedLarge,
		"Reads": sharedReads, "Types": sharedTypes, "Discard": sharedDiscard,
	} {
		t.Run(name, func(t *testing.T) {
			c := m.fresh(t)
			test(t, func(onCommit func(store.Commit)) store.Store {
				s, err := etcd.Open(t.Context(), c, etcd.Options{OnCommit: onCommit})
				noError(t, err)
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
				})
				return s
			})
		})
	}
}

// update makes an Update that must succeed.
func update(t *testing.T, s store.Store, fn func(*store.Tx) error) *store.Snapshot {
	t.Helper()
	after, err := s.Update(t.Context(), fn)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	return after
}

// contents are all entries of a snapshot, with the beginning of their values.
func contents(s *store.Snapshot) string {
	var all []string
	for e := range s.All() {
		all = append(all, fmt.Sprintf("%s=%.20s", e.Key.Name, e.Raw))
	}
	return strings.Join(all, " ")
}

func checkContents(t *testing.T, what string, s *store.Snapshot, want string) {
	t.Helper()
	if got := contents(s); got != want {
		t.Errorf("%s: got %.200q, want %.200q", what, got, want)
	}
}

// arrived waits until a store has a commit, and returns its snapshot.
func arrived(t *testing.T, s store.Store, index uint64) *store.Snapshot {
	t.Helper()
	until(t, fmt.Sprint("commit ", index), func() bool { return s.Snapshot().Index() >= index })
	return s.Snapshot()
}

// sharedCommits checks that each store reports the commits of the other, in the same order,
// with the same indices.
func sharedCommits(t *testing.T, open opener) {
	var mu sync.Mutex
	var logs [2][]string
	observe := func(i int) func(store.Commit) {
		return func(c store.Commit) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range c.Changed {
				logs[i] = append(logs[i], fmt.Sprintf("%d %s=%s", c.After.Index(), k.Name, value(c.After, k.Name)))
			}
		}
	}
	a, b := open(observe(0)), open(observe(1))
	var last uint64
	for i := range 10 {
		arrived(t, b, put(t, a, "a", fmt.Sprint(i)).Index())
		last = update(t, b, func(tx *store.Tx) error {
			tx.Delete(key("a"))
			return tx.Put(key("b"), fmt.Append(nil, i))
		}).Index()
		arrived(t, a, last)
	}
	checkContents(t, "a", arrived(t, a, last), "b=9")
	checkContents(t, "b", arrived(t, b, last), "b=9")
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(logs[0]) != fmt.Sprint(logs[1]) {
		t.Errorf("commits of one:\n%v\nof the other:\n%v", logs[0], logs[1])
	}
}

// sharedIncrements checks that no increment is lost.
func sharedIncrements(t *testing.T, open opener) {
	all := []store.Store{open(nil), open(nil), open(nil)}
	storetest.Increment(t, 2, 10, all...)
	last := uint64(0)
	for _, s := range all {
		last = max(last, s.Snapshot().Index())
	}
	for _, s := range all {
		checkContents(t, "counters", arrived(t, s, last), "0=60 1=60 2=60")
	}
}

// sharedLarge checks that both stores see each large commit as one, while both make some.
func sharedLarge(t *testing.T, open opener) {
	whole := func(c store.Commit) {
		got := versions(c.After)
		if len(c.Changed) > 0 && (strings.Count(got, ":") != 1 || !strings.HasPrefix(got, fmt.Sprint(manyEntries(), " "))) {
			t.Errorf("commit %d has versions %s", c.After.Index(), got)
		}
	}
	a, b := open(whole), open(whole)
	var group sync.WaitGroup
	for name, s := range map[string]store.Store{"a": a, "b": b} {
		group.Go(func() {
			for i := range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := s.Update(ctx, func(tx *store.Tx) error { return many(tx, fmt.Sprint(name, i)) })
				cancel()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	last := put(t, a, "last", "1")
	checkContents(t, "the other", arrived(t, b, last.Index()), contents(last))
}

// sharedReads checks that an error and an unchanged result depend on the last state of the
// store, not on the last one that this daemon has seen.
func sharedReads(t *testing.T, open opener) {
	refused := errors.New("refused")
	a, b := open(nil), open(nil)
	for i := range 20 {
		want := fmt.Sprint(i)
		put(t, a, "a", want)
		update(t, b, func(tx *store.Tx) error {
			if e, _ := tx.Get(key("a")); string(e.Raw) != want {
				return fmt.Errorf("the precondition %s failed: %s", want, e.Raw)
			}
			return nil
		})
		put(t, a, "b", want)
		_, err := b.Update(t.Context(), func(tx *store.Tx) error {
			for e := range tx.All() {
				if e.Key == key("b") && string(e.Raw) == want {
					return refused
				}
			}
			return errors.New("outdated")
		})
		if !errors.Is(err, refused) {
			t.Error(err)
		}
		// The same content again, which is outdated by then, is written.
		put(t, a, "c", "old")
		put(t, a, "c", "new")
		checkContents(t, "written again", put(t, b, "c", "old"), fmt.Sprintf("a=%d b=%d c=old", i, i))
	}
}

// sharedTypes checks that a commit depends on what another daemon puts of a type that it has read, and not on
// what is deleted.
func sharedTypes(t *testing.T, open opener) {
	a, b := open(nil), open(nil)
	for i, c := range []struct {
		value string // of c; empty deletes it
		runs  int
	}{{"1", 2}, {"2", 2}, {"", 1}} {
		runs := 0
		arrived(t, b, a.Snapshot().Index())
		update(t, b, func(tx *store.Tx) error {
			if runs++; runs == 1 && c.value != "" {
				put(t, a, "c", c.value)
			} else if runs == 1 {
				update(t, a, func(tx *store.Tx) error { tx.Delete(key("c")); return nil })
			}
			for range tx.Of(key("").Type) {
			}
			return tx.Put(resource.Key{Type: "another", Name: "x"}, fmt.Append(nil, i))
		})
		if runs != c.runs {
			t.Errorf("c=%s: the function ran %d times, want %d", c.value, runs, c.runs)
		}
	}
}

func sharedDiscard(t *testing.T, open opener) {
	a, b := open(nil), open(nil)
	put(t, a, "a", "1")
	runs := 0
	after := update(t, b, func(tx *store.Tx) error {
		if runs++; runs == 1 {
			put(t, a, "a", "2")
		}
		tx.Discard(key("a"))
		return nil
	})
	if runs != 1 {
		t.Errorf("the function ran %d times: a discarded key was read", runs)
	}
	checkContents(t, "discarded", after, "")
}
