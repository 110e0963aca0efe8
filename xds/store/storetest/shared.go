package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// eventually waits until a store has a commit, and returns its snapshot.
func eventually(t *testing.T, s store.Store, index uint64) *store.Snapshot {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if now := s.Snapshot(); now.Index() >= index {
			return now
		}
		if time.Now().After(until) {
			t.Fatalf("the store has %d, not %d", s.Snapshot().Index(), index)
		}
	}
}

// sharedCommits checks that each store reports the commits of the other, in the same order,
// with the same indices.
func sharedCommits(t *testing.T, open Open) {
	type log struct {
		mu   sync.Mutex
		text []string
	}
	var logs [2]log
	observe := func(l *log) func(store.Commit) {
		return func(c store.Commit) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, k := range c.Changed {
				e, _ := c.After.Get(k)
				l.text = append(l.text, fmt.Sprintf("%d %s=%s", c.After.Index(), k.Name, e.Raw))
			}
		}
	}
	a, b := opened(t, open, Options{OnCommit: observe(&logs[0])}), opened(t, open, Options{OnCommit: observe(&logs[1])})
	var last uint64
	for i := range 10 {
		last = set(t, a, fmt.Sprint("a=", i)).Index()
		eventually(t, b, last)
		last = set(t, b, fmt.Sprint("b=", i), "a").Index()
		eventually(t, a, last)
	}
	check(t, "a", eventually(t, a, last), "b=9")
	check(t, "b", eventually(t, b, last), "b=9")
	for i := range logs {
		logs[i].mu.Lock()
		defer logs[i].mu.Unlock()
	}
	if fmt.Sprint(logs[0].text) != fmt.Sprint(logs[1].text) {
		t.Errorf("commits of one:\n%v\nof the other:\n%v", logs[0].text, logs[1].text)
	}
}

// sharedIncrements checks that no increment is lost.
func sharedIncrements(t *testing.T, open Open) {
	a, b, c := opened(t, open, Options{}), opened(t, open, Options{}), opened(t, open, Options{})
	increment(t, 2, 10, a, b, c)
	last := max(a.Snapshot().Index(), b.Snapshot().Index(), c.Snapshot().Index())
	for _, s := range []store.Store{a, b, c} {
		check(t, "counters", eventually(t, s, last), "0=60 1=60 2=60")
	}
}

// sharedLarge checks that both stores see each large commit as one, while both make some.
func sharedLarge(t *testing.T, open Open) {
	const n, size = 250, 6000
	whole := func(c store.Commit) {
		if len(c.Changed) == 0 {
			return
		}
		e, _ := c.After.Get(key("many-0000"))
		for i := range n {
			if other, _ := c.After.Get(key(fmt.Sprintf("many-%04d", i))); string(other.Raw) != string(e.Raw) {
				t.Errorf("commit %d has versions %.10s and %.10s", c.After.Index(), e.Raw, other.Raw)
				return
			}
		}
	}
	a, b := opened(t, open, Options{OnCommit: whole}), opened(t, open, Options{OnCommit: whole})
	var group sync.WaitGroup
	for name, s := range map[string]store.Store{"a": a, "b": b} {
		group.Go(func() {
			for i := range 4 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := s.Update(ctx, func(tx *store.Tx) error { return putMany(tx, fmt.Sprint(name, i), n, size) })
				cancel()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	last := set(t, a, "last=1")
	if got, want := text(t, eventually(t, b, last.Index())), text(t, last); got != want {
		t.Errorf("one has %.200s, the other %.200s", got, want)
	}
}

// sharedReads checks that an error and an unchanged result depend on the last state of the
// store, not on the last one that this daemon has seen.
func sharedReads(t *testing.T, open Open) {
	a, b := opened(t, open, Options{}), opened(t, open, Options{})
	for i := range 20 {
		want := fmt.Sprint(i)
		set(t, a, "a="+want)
		_, err := b.Update(t.Context(), func(tx *store.Tx) error {
			e, _ := tx.Get(key("a"))
			if string(e.Raw) == want {
				return nil
			}
			return fmt.Errorf("the precondition %s failed: %s", want, e.Raw)
		})
		if err != nil {
			t.Error(err)
		}
		set(t, a, "b="+want)
		_, err = b.Update(t.Context(), func(tx *store.Tx) error {
			for e := range tx.All() {
				if e.Key == key("b") && string(e.Raw) == want {
					return errRefused
				}
			}
			return errors.New("outdated")
		})
		if !errors.Is(err, errRefused) {
			t.Error(err)
		}
		// The same content again, which is outdated by then, is written.
		set(t, a, "c=old")
		set(t, a, "c=new")
		check(t, "written again", set(t, b, "c=old"), fmt.Sprintf("a=%d b=%d c=old", i, i))
	}
}

// sharedTypes checks that a commit depends on what another daemon puts of a type that it has read, and not on
// what is deleted.
func sharedTypes(t *testing.T, open Open) {
	a, b := opened(t, open, Options{}), opened(t, open, Options{})
	for _, c := range []struct {
		change string
		runs   int
	}{{"c=1", 2}, {"c=2", 2}, {"c", 1}} {
		change, want, runs := c.change, c.runs, 0
		eventually(t, b, a.Snapshot().Index())
		update(t, b, func(tx *store.Tx) error {
			if runs++; runs == 1 {
				set(t, a, change)
			}
			for range tx.Of(key("").Type) {
			}
			return tx.Put(resource.Key{Type: "another", Name: "x"}, []byte(change))
		})
		if runs != want {
			t.Errorf("%s: the function ran %d times, want %d", change, runs, want)
		}
	}
}

func sharedDiscard(t *testing.T, open Open) {
	a, b := opened(t, open, Options{}), opened(t, open, Options{})
	set(t, a, "a=1")
	runs := 0
	after := update(t, b, func(tx *store.Tx) error {
		if runs++; runs == 1 {
			set(t, a, "a=2")
		}
		tx.Discard(key("a"))
		return nil
	})
	if runs != 1 {
		t.Errorf("the function ran %d times: a discarded key was read", runs)
	}
	check(t, "discarded", after, "")
}
