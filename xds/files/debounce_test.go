package files

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestDelayEndsAfterAPauseOrAtItsLimit(t *testing.T) {
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ms := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	u := debounce{timing: defaultTiming}
	due := func(at, want int) {
		t.Helper()
		u.change(ms(at), nil)
		if !u.due.Equal(ms(want)) {
			t.Errorf("a change at %d ms: due at %v, want %d ms", at, u.due.Sub(begin), want)
		}
	}
	due(0, 100)
	due(30, 130)
	for at := 100; at <= 900; at += 50 {
		due(at, at+100)
	}
	due(950, 1000)
	due(999, 1000)
	if !u.over(ms(1000), listing{}) {
		t.Error("not over after most")
	}
	due(2000, 2100)
	if !u.over(ms(2100), listing{}) {
		t.Error("not over after quiet")
	}
}

// Without notifications, quiet means that two looks are the same.
func TestUnnotifiedChangesEndWhenLooksAreTheSame(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	begin := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	ms := func(n int) time.Time { return begin.Add(time.Duration(n) * time.Millisecond) }
	seen := func(content string) *listing {
		t.Helper()
		write(t, path, content)
		do(t, os.Chtimes(path, begin, begin))
		l := readListing(dir, nil)
		return &l
	}
	u := debounce{timing: defaultTiming}
	u.change(ms(0), seen("1"))
	if u.over(ms(100), *seen("22")) || !u.due.Equal(ms(200)) {
		t.Errorf("over while the file grows, or due at %v", u.due)
	}
	if !u.over(ms(200), *seen("22")) {
		t.Error("not over when it stays the same")
	}
	u.change(ms(1000), seen("1"))
	u.change(ms(1950), nil)
	if !u.over(ms(2000), *seen("22")) {
		t.Error("not over after most")
	}
}

func TestLooksDetectChanges(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	last := readListing(dir, nil)
	for _, step := range []struct {
		name string
		do   func()
		same bool
	}{
		{"a file", func() { write(t, path, "1") }, false},
		{"nothing", func() {}, true},
		{"its size", func() { write(t, path, "22") }, false},
		{"its time", func() { do(t, os.Chtimes(path, time.Time{}, time.Unix(7, 0))) }, false},
		{"its inode", func() { replace(t, path, "33"); do(t, os.Chtimes(path, time.Time{}, time.Unix(7, 0))) }, false},
		{"a hidden one", func() { write(t, filepath.Join(dir, ".b.yaml"), "1") }, true},
		{"a symlink to nothing", func() { do(t, os.Remove(path)); do(t, os.Symlink("c", path)) }, false},
		{"still", func() {}, true},
		{"gone", func() { do(t, os.Remove(path)) }, false},
		{"all gone", func() { do(t, os.RemoveAll(dir)) }, false},
		{"and away", func() {}, true},
	} {
		step.do()
		l := readListing(dir, nil)
		if l.same(last) != step.same || last.same(l) != step.same {
			t.Errorf("%s: same is %v", step.name, !step.same)
		}
		last = l
	}
}
