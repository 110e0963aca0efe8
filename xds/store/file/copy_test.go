package file

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// of is a snapshot of another store: values by name, and the index of each entry.
func of(index uint64, entries map[string]uint64) *store.Snapshot {
	changes := store.Changes{}
	for name, at := range entries {
		key := clusterKey(name)
		changes[key] = &store.Entry{Key: key, Raw: []byte(name), Updated: begin.Add(time.Duration(at)), Index: at}
	}
	s, _ := new(store.Snapshot).Apply(changes, index)
	return s.At(index)
}

func TestCopy(t *testing.T) {
	dir := t.TempDir()
	commits := 0
	s := open(t, dir, Options{OnCommit: func(store.Commit) { commits++ }})
	for i, c := range []struct {
		of      *store.Snapshot
		want    string
		commits int
	}{
		{of(900, map[string]uint64{"a": 7, "b": 900}), "900 a=7 b=900", 1},
		{of(900, map[string]uint64{"a": 7, "b": 900}), "900 a=7 b=900", 1}, // nothing differs
		{of(950, map[string]uint64{"b": 900, "c": 950}), "950 b=900 c=950", 2},
		{of(951, map[string]uint64{"b": 900, "c": 950}), "951 b=900 c=950", 3}, // only the index
		{of(20, map[string]uint64{"d": 20}), "20 d=20", 4},                     // of another store
		{of(20, map[string]uint64{"e": 19}), "20 e=19", 5},
		{of(21, map[string]uint64{}), "21", 6},
	} {
		noError(t, s.Copy(t.Context(), c.of))
		if got := indices(s.Snapshot()); got != c.want || commits != c.commits {
			t.Errorf("copy %d: %s with %d commits, want %s with %d", i, got, commits, c.want, c.commits)
		}
		closeStore(t, s)
		s = open(t, dir, Options{OnCommit: func(store.Commit) { commits++ }})
		if got := indices(s.Snapshot()); got != c.want {
			t.Errorf("copy %d, reopened: %s, want %s", i, got, c.want)
		}
		for e := range s.Snapshot().All() {
			if !e.Updated.Equal(begin.Add(time.Duration(e.Index))) {
				t.Errorf("copy %d: %v was updated %v", i, e.Key, e.Updated)
			}
		}
	}
	if put(t, s, clusterKey("x"), "1").Index() != 22 {
		t.Error("a commit after copies does not follow")
	}
}

func TestCopyFails(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, clusterKey("a"), "1")
	noError(t, os.Remove(storeFile(dir)))
	for _, index := range []uint64{1, 9} {
		err := s.Copy(t.Context(), of(index, map[string]uint64{"b": 1}))
		if !errors.Is(err, store.ErrCannotWrite) || indices(s.Snapshot()) != "1 a=1" {
			t.Errorf("index %d: %v, %s", index, err, indices(s.Snapshot()))
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	closeStore(t, s)
	if err := s.Copy(t.Context(), &store.Snapshot{}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.Copy(cancelled, &store.Snapshot{}); err == nil {
		t.Error("cancelled and closed: no error")
	}
}

func TestDifference(t *testing.T) {
	a, b := of(1, map[string]uint64{"a": 1, "b": 1, "d": 1}), of(2, map[string]uint64{"b": 2, "c": 2, "e": 2})
	want := []resource.Key{clusterKey("a"), clusterKey("c"), clusterKey("d"), clusterKey("e")}
	for _, keys := range [][]resource.Key{store.Difference(a, b), store.Difference(b, a)} {
		if len(keys) != len(want) {
			t.Fatalf("got %v, want %v", keys, want)
		}
		for i := range keys {
			if keys[i] != want[i] {
				t.Errorf("got %v, want %v", keys, want)
			}
		}
	}
	if keys := store.Difference(a, a); keys != nil {
		t.Errorf("of itself: %v", keys)
	}
}
