package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

var errRefused = errors.New("refused by the function")

func key(name string) resource.Key {
	return resource.Key{Type: resource.TypeCluster, Name: name}
}

// opened opens a store that is closed with the test.
func opened(t *testing.T, open Open, o Options) store.Store {
	t.Helper()
	s := open(t, o)
	t.Cleanup(func() { closed(t, s) })
	return s
}

func closed(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func update(t *testing.T, s store.Store, fn func(*store.Tx) error) *store.Snapshot {
	t.Helper()
	after, err := s.Update(t.Context(), fn)
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	return after
}

// set puts entries "name=value", or deletes "name", in one Update.
func set(t *testing.T, s store.Store, entries ...string) *store.Snapshot {
	t.Helper()
	return update(t, s, func(tx *store.Tx) error { return write(tx, entries...) })
}

func write(tx *store.Tx, entries ...string) error {
	for _, e := range entries {
		name, value, put := strings.Cut(e, "=")
		if !put {
			tx.Delete(key(name))
		} else if err := tx.Put(key(name), []byte(value)); err != nil {
			return err
		}
	}
	return nil
}

// text is the contents of a snapshot, with a check of what it promises.
func text(t *testing.T, s *store.Snapshot) string {
	t.Helper()
	var out []string
	var last *store.Entry
	for e := range s.All() {
		if last != nil && store.CompareKeys(last.Key, e.Key) >= 0 {
			t.Errorf("All yields %v after %v", e.Key, last.Key)
		}
		if got, ok := s.Get(e.Key); !ok || !bytes.Equal(got.Raw, e.Raw) {
			t.Errorf("Get(%v) is not what All yields", e.Key)
		}
		if e.Index == 0 || e.Index > s.Index() {
			t.Errorf("%v has index %d in a snapshot of %d", e.Key, e.Index, s.Index())
		}
		last = &e
		out = append(out, fmt.Sprintf("%s=%.20s", e.Key.Name, e.Raw))
	}
	if s.Len() != len(out) {
		t.Errorf("Len is %d of %d", s.Len(), len(out))
	}
	return strings.Join(out, " ")
}

func check(t *testing.T, what string, s *store.Snapshot, want string) {
	t.Helper()
	if got := text(t, s); got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func updates(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	check(t, "empty", s.Snapshot(), "")
	check(t, "put", set(t, s, "a=1", "b=2"), "a=1 b=2")
	check(t, "replace and delete", set(t, s, "a=3", "b", "c"), "a=3")
	check(t, "an empty value", set(t, s, "a=", "b=1"), "a= b=1")
	check(t, "all", set(t, s, "a", "b"), "")
	update(t, s, func(tx *store.Tx) error {
		err := write(tx, "x=1", "y=1", "x")
		if _, found := tx.Get(key("x")); found || tx.Delete(key("x")) {
			t.Error("x is there after its deletion")
		}
		var seen []string
		for e := range tx.All() {
			seen = append(seen, e.Key.Name)
		}
		if !slices.Equal(seen, []string{"y"}) {
			t.Errorf("All yields %v", seen)
		}
		return err
	})
	check(t, "what the function read", s.Snapshot(), "y=1")
}

func indexes(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	first := set(t, s, "a=1", "b=1")
	if first.Index() == 0 {
		t.Error("the first commit has index 0")
	}
	index := func(s *store.Snapshot, name string) uint64 {
		e, _ := s.Get(key(name))
		return e.Index
	}
	if index(first, "a") != first.Index() || index(first, "b") != first.Index() {
		t.Errorf("entries of commit %d have %d and %d", first.Index(), index(first, "a"), index(first, "b"))
	}
	if again := set(t, s, "a=1"); index(again, "a") != first.Index() || again.Index() < first.Index() {
		t.Errorf("the same content again: commit %d, entry %d", again.Index(), index(again, "a"))
	}
	second := set(t, s, "a=2")
	if second.Index() <= first.Index() || index(second, "a") != second.Index() || index(second, "b") != first.Index() {
		t.Errorf("after %d: commit %d, entries %d and %d", first.Index(), second.Index(), index(second, "a"), index(second, "b"))
	}
	if third := set(t, s, "a"); third.Index() <= second.Index() {
		t.Errorf("a deletion after %d has %d", second.Index(), third.Index())
	}
	update(t, s, func(tx *store.Tx) error {
		err := write(tx, "new=1")
		if e, _ := tx.Get(key("new")); e.Index != 0 {
			t.Errorf("what is not committed has index %d", e.Index)
		}
		return err
	})
}

func discard(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	set(t, s, "a=1", "b=1")
	after := update(t, s, func(tx *store.Tx) error {
		tx.Discard(key("a"))
		tx.Discard(key("none"))
		if _, found := tx.Get(key("a")); found {
			t.Error("a is there")
		}
		return nil
	})
	check(t, "discarded", after, "b=1")
}

// recorded opens a store, and returns what it has reported. A commit is in Snapshot before that.
func recorded(t *testing.T, open Open) (s store.Store, reported func() []store.Commit) {
	t.Helper()
	var mu sync.Mutex
	var all []store.Commit
	s = opened(t, open, Options{OnCommit: func(c store.Commit) {
		mu.Lock()
		defer mu.Unlock()
		if now := s.Snapshot(); now.Index() < c.After.Index() {
			t.Errorf("commit %d is reported before it is in Snapshot, which has %d", c.After.Index(), now.Index())
		}
		if len(c.Changed) > 0 {
			all = append(all, c)
		}
	}})
	return s, func() []store.Commit {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

func commits(t *testing.T, open Open) {
	s, reported := recorded(t, open)
	set(t, s, "a=1", "z=1")
	after := set(t, s, "a", "c=1", "b=1", "z=1")
	got := reported()
	if len(got) != 2 || got[1].After.Index() > after.Index() {
		t.Fatalf("%d commits: %v", len(got), got)
	}
	if want := []resource.Key{key("a"), key("b"), key("c")}; !slices.Equal(got[1].Changed, want) {
		t.Errorf("changed: %v, want %v", got[1].Changed, want)
	}
	check(t, "first commit", got[0].After, "a=1 z=1")
	check(t, "second commit", got[1].After, "b=1 c=1 z=1")
}

func values(t *testing.T, open Open) {
	s, reported := recorded(t, open)
	for _, value := range []string{"one", "two"} {
		after := update(t, s, func(tx *store.Tx) error { return tx.PutValue(key("a"), []byte(value), value) })
		all := reported()
		for _, in := range []*store.Snapshot{after, s.Snapshot(), all[len(all)-1].After} {
			if e, _ := in.Get(key("a")); e.Value != value {
				t.Errorf("the value is %v, want %s", e.Value, value)
			}
		}
	}
}

func times(t *testing.T, open Open) {
	first := time.Date(2026, 11, 20, 12, 0, 0, 7, time.UTC)
	var now atomic.Pointer[time.Time]
	now.Store(&first)
	s := opened(t, open, Options{Now: func() time.Time { return *now.Load() }})
	set(t, s, "a=1", "b=1")
	later := first.Add(time.Hour)
	now.Store(&later)
	after := set(t, s, "a=1", "b=2")
	for name, want := range map[string]time.Time{"a": first, "b": later} {
		if e, _ := after.Get(key(name)); !e.Updated.Equal(want) {
			t.Errorf("%s was updated at %v, want %v", name, e.Updated, want)
		}
	}
}

func refused(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	for name, c := range map[string]struct {
		key  resource.Key
		want error
	}{
		"no type":           {resource.Key{Name: "a"}, store.ErrInvalidKey},
		"a NUL in the type": {resource.Key{Type: "a\x00b", Name: "a"}, store.ErrInvalidKey},
		"the longest key":   {resource.Key{Type: "t", Name: strings.Repeat("n", store.MaxKeySize-2)}, nil},
		"a longer key":      {resource.Key{Type: "t", Name: strings.Repeat("n", store.MaxKeySize-1)}, store.ErrInvalidKey},
	} {
		_, err := s.Update(t.Context(), func(tx *store.Tx) error { return tx.Put(c.key, []byte("1")) })
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if s.Snapshot().Len() != 1 {
		t.Errorf("%d entries", s.Snapshot().Len())
	}
}

// concurrent increments counters: an Update sees what those before it wrote.
func concurrent(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	Increment(t, 4, 20, s)
	check(t, "counters", s.Snapshot(), "0=80 1=80 2=80")
}

// Increment adds to three counters in each of some Updates, of writers in each store.
func Increment(t *testing.T, writers, times int, stores ...store.Store) {
	t.Helper()
	var group sync.WaitGroup
	for _, s := range stores {
		for range writers {
			group.Go(func() {
				for range times {
					if _, err := s.Update(t.Context(), addOne); err != nil {
						t.Errorf("Update: %v", err)
						return
					}
				}
			})
		}
	}
	group.Wait()
}

func addOne(tx *store.Tx) error {
	for i := range 3 {
		n := 0
		if e, ok := tx.Get(key(fmt.Sprint(i))); ok {
			if _, err := fmt.Sscan(string(e.Raw), &n); err != nil {
				return err
			}
		}
		if err := tx.Put(key(fmt.Sprint(i)), fmt.Append(nil, n+1)); err != nil {
			return err
		}
	}
	return nil
}

// content is a value of a size that depends on its name.
func content(name string, size int) []byte {
	return bytes.Repeat([]byte(name+"."), size/(len(name)+1)+1)
}

// putMany puts entries of which a store cannot write all in one request.
func putMany(tx *store.Tx, version string, n, size int) error {
	for i := range n {
		if err := tx.Put(key(fmt.Sprintf("many-%04d", i)), content(version, size)); err != nil {
			return err
		}
	}
	return nil
}

func checkMany(t *testing.T, s *store.Snapshot, version string, n, size int) {
	t.Helper()
	for i := range n {
		e, ok := s.Get(key(fmt.Sprintf("many-%04d", i)))
		if !ok || !bytes.Equal(e.Raw, content(version, size)) {
			t.Fatalf("many-%04d is not version %s: %v, %.20s", i, version, ok, e.Raw)
		}
	}
}

func large(t *testing.T, open Open) {
	s, reported := recorded(t, open)
	for _, c := range []struct{ n, size int }{{500, 10}, {20, 200_000}, {3, 3_000_000}} {
		version := fmt.Sprint("v", c.size)
		before := s.Snapshot().Index()
		after := update(t, s, func(tx *store.Tx) error { return putMany(tx, version, c.n, c.size) })
		checkMany(t, after, version, c.n, c.size)
		for _, commit := range reported() {
			if at, n := commit.After.Index(), len(commit.Changed); at > before && n != c.n {
				t.Errorf("commit %d changed %d of %d", at, n, c.n)
			}
		}
	}
	after := update(t, s, func(tx *store.Tx) error {
		for e := range tx.All() {
			tx.Delete(e.Key)
		}
		return nil
	})
	check(t, "all deleted", after, "")
	check(t, "a commit after it", set(t, s, "a=1"), "a=1")
}

func names(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	all := []string{"", "/", "//", "a/b", "%2F", "é", "\x00", "a\xff\xfe", " ", "..", "xdstp://a/b?c=d"}
	update(t, s, func(tx *store.Tx) error {
		for _, name := range all {
			for _, kind := range []resource.Type{"A", "A/B", "A B"} {
				if err := tx.Put(resource.Key{Type: kind, Name: name}, []byte(string(kind)+name)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if n := s.Snapshot().Len(); n != 3*len(all) {
		t.Errorf("%d entries of %d", n, 3*len(all))
	}
	for e := range s.Snapshot().All() {
		if string(e.Raw) != string(e.Key.Type)+e.Key.Name {
			t.Errorf("%v has %q", e.Key, e.Raw)
		}
	}
}

func errorsAndPanics(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	set(t, s, "a=1")
	_, err := s.Update(t.Context(), func(tx *store.Tx) error { return errors.Join(write(tx, "a=2", "b=1"), errRefused) })
	if !errors.Is(err, errRefused) {
		t.Errorf("got %v", err)
	}
	after, err := s.Update(t.Context(), func(*store.Tx) error { return errRefused })
	if err != errRefused || after != nil { //nolint:errorlint // as it is, not wrapped
		t.Errorf("got %v, %v", after, err)
	}
	_, err = s.Update(t.Context(), func(tx *store.Tx) error {
		tx.Delete(key("a"))
		panic("no luck")
	})
	if p, ok := errors.AsType[*store.PanicError](err); !ok || p.Value != "no luck" || !strings.Contains(string(p.Stack), "storetest") {
		t.Errorf("got %v", err)
	}
	check(t, "after errors", s.Snapshot(), "a=1")
	check(t, "goes on", set(t, s, "b=1"), "a=1 b=1")
}

func closedAndCancelled(t *testing.T, open Open) {
	s := open(t, Options{})
	never := func(*store.Tx) error {
		t.Error("the function runs")
		return nil
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Update(cancelled, never); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	set(t, s, "a=1")
	closed(t, s)
	closed(t, s)
	if _, err := s.Update(t.Context(), never); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	check(t, "closed", s.Snapshot(), "a=1")
}

func snapshotsStay(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	raw := []byte("right")
	first := update(t, s, func(tx *store.Tx) error { return tx.Put(key("a"), raw) })
	copy(raw, "wrong")
	index := first.Index()
	set(t, s, "a=2", "b=1")
	set(t, s, "a")
	check(t, "first", first, "a=right")
	if first.Index() != index {
		t.Errorf("its index is %d, was %d", first.Index(), index)
	}
}

// lastState checks that Updates that change nothing see the Updates before them.
func lastState(t *testing.T, open Open) {
	s := opened(t, open, Options{})
	for i := range 5 {
		after := set(t, s, fmt.Sprint("a=", i))
		seen, err := s.Update(t.Context(), func(tx *store.Tx) error {
			if e, _ := tx.Get(key("a")); string(e.Raw) != fmt.Sprint(i) {
				return fmt.Errorf("read %s after %d", e.Raw, i)
			}
			return nil
		})
		if err != nil || seen.Index() < after.Index() {
			t.Errorf("%v, index %d", err, seen.Index())
		}
	}
}

func reopened(t *testing.T, open Open) {
	s := open(t, Options{})
	set(t, s, "a=1", "b=1")
	set(t, s, "b=2", "c=1")
	last := set(t, s, "c")
	closed(t, s)
	s = open(t, Options{})
	check(t, "reopened", s.Snapshot(), "a=1 b=2")
	if got := s.Snapshot(); got.Index() != last.Index() {
		t.Errorf("index %d, was %d", got.Index(), last.Index())
	}
	for e := range s.Snapshot().All() {
		if was, _ := last.Get(e.Key); was.Index != e.Index || !was.Updated.Equal(e.Updated) || e.Value != nil {
			t.Errorf("%v is %v, was %v", e.Key, e, was)
		}
	}
	after := set(t, s, "d=1")
	if after.Index() <= last.Index() {
		t.Errorf("commit %d after %d", after.Index(), last.Index())
	}
	update(t, s, func(tx *store.Tx) error { return putMany(tx, "v", 300, 5000) })
	closed(t, s)
	s = opened(t, open, Options{})
	checkMany(t, s.Snapshot(), "v", 300, 5000)
}
