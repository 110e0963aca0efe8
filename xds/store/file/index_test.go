package file

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/test/storetest"
	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

func TestConformance(t *testing.T) {
	opener := func(dir func(t *testing.T) string) storetest.Fresh {
		return func(t *testing.T) storetest.Open {
			at := dir(t)
			return func(t *testing.T, o storetest.Options) store.Store {
				s, err := Open(at, Options{Now: o.Now, OnCommit: o.OnCommit})
				noError(t, err)
				return s
			}
		}
	}
	t.Run("on disk", func(t *testing.T) {
		storetest.Run(t, opener(func(t *testing.T) string { t.Helper(); return t.TempDir() }), true)
	})
	t.Run("in memory", func(t *testing.T) {
		storetest.Run(t, opener(func(*testing.T) string { return "" }), false)
	})
}

// indices are the index of a snapshot, and those of its entries.
func indices(s *store.Snapshot) string {
	out := []string{fmt.Sprint(s.Index())}
	for e := range s.All() {
		out = append(out, fmt.Sprintf("%s=%d", e.Key.Name, e.Index))
	}
	return strings.Join(out, " ")
}

func TestIndicesSurviveACompaction(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, clusterKey("first"), "1")
	largest := grow(t, s)
	put(t, s, clusterKey("last"), "1")
	if want := "42 a=41 first=1 last=42"; indices(s.Snapshot()) != want || fileSize(t, s) > largest {
		t.Errorf("indices are %s, want %s", indices(s.Snapshot()), want)
	}
	inWriter(t, s, func(f *file) {
		if err := f.replace(s.Snapshot()); err != nil {
			t.Error(err)
		}
	})
	closeStore(t, s)
	s = open(t, dir, Options{})
	if want := "42 a=41 first=1 last=42"; indices(s.Snapshot()) != want {
		t.Errorf("indices of the compacted file are %s, want %s", indices(s.Snapshot()), want)
	}
	// A commit that only deletes is counted, too, also by a start after a compaction.
	update(t, s, func(tx *store.Tx) error { tx.Delete(clusterKey("a")); return nil })
	inWriter(t, s, func(f *file) {
		if err := f.replace(s.Snapshot()); err != nil {
			t.Error(err)
		}
	})
	closeStore(t, s)
	if got := indices(open(t, dir, Options{}).Snapshot()); got != "43 first=1 last=42" {
		t.Errorf("after a deletion and a compaction: %s", got)
	}
}

// Indices that no commit can have are damage.
func TestIndicesThatDoNotGrow(t *testing.T) {
	entry := func(index uint64) *store.Entry {
		return &store.Entry{Key: resource.Key{Type: "A", Name: "a"}, Raw: []byte("1"), Updated: begin, Index: index}
	}
	for name, c := range map[string]struct {
		entries, commits []uint64
		sound            bool
	}{
		"growing":                    {[]uint64{3, 5}, []uint64{3, 7}, true},
		"the same twice":             {[]uint64{3, 3}, []uint64{3, 3}, false},
		"smaller":                    {[]uint64{3, 2}, []uint64{3, 2}, false},
		"an entry of a later commit": {[]uint64{3, 9}, []uint64{3, 4}, false},
		"an entry of no commit":      {[]uint64{0}, []uint64{3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(storeFile(t.TempDir()))
			noError(t, err)
			defer func() { noError(t, f.Close()) }()
			_, start := encodeHeader(0)
			w := newWriter(f, start)
			for i := range c.commits {
				w.put(entry(c.entries[i]), nil)
				noError(t, w.commit(c.commits[i]))
			}
			header, _ := encodeHeader(w.end.size)
			_, err = f.WriteAt(header, 0)
			noError(t, err)
			l, err := readLog(f, w.end.size)
			if sound := err == nil; sound != c.sound {
				t.Errorf("read with %v", err)
			}
			if c.sound && indices(l.snapshot) != "7 a=5" {
				t.Errorf("indices are %s", indices(l.snapshot))
			}
		})
	}
}
