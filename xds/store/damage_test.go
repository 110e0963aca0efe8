package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lbd-dev/lbd/xds/resource"
)

const testPage = 4096

// soundFile makes a file with all that a bbolt file can have (branches, values over
// several pages, free pages), and returns its bytes and what it holds.
func soundFile(t *testing.T) ([]byte, map[resource.Key]string) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, Options{})
	fill(t, s, 250, 100)
	fill(t, s, 3, 9000)
	update(t, s, func(tx *Tx) error {
		for i := 20; i < 120; i++ {
			tx.Delete(clusterKey(fmt.Sprintf("cluster-%05d", i)))
		}
		return tx.Put(assignmentKey("long"), bytes.Repeat([]byte("long "), 3000))
	})
	put(t, s, assignmentKey("last"), "the last commit's")
	closeStore(t, s)
	data, err := os.ReadFile(storeFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[uint16]int{}
	for page := 2 * testPage; page < len(data); page += testPage {
		kinds[native.Uint16(data[page+8:])]++
	}
	if kinds[branchPage] == 0 || kinds[leafPage] == 0 || kinds[freelistPage] == 0 {
		t.Fatalf("the file has not every kind of page: %v", kinds)
	}
	return data, contents(t, s.Snapshot())
}

func lay(t *testing.T, dir string, data []byte) {
	t.Helper()
	if err := os.WriteFile(storeFile(dir), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wholeOrReported opens data as a store file. Either all of want is there, and
// goes on being there with writes; or the damage is reported, the file kept as
// it is, and the next start empty. It tells which.
func wholeOrReported(t *testing.T, what string, data []byte, want map[resource.Key]string) (whole bool) {
	t.Helper()
	dir := t.TempDir()
	lay(t, dir, data)
	s, err := Open(dir, Options{})
	var report *DamagedError
	switch {
	case err == nil:
		defer closeStore(t, s)
		if got := contents(t, s.Snapshot()); !maps.Equal(got, want) {
			t.Errorf("%s: opened with%s, want%s", what, brief(got), brief(want))
		}
		return true
	case !errors.As(err, &report):
		t.Errorf("%s: %v", what, err)
		return false
	}
	kept, err := os.ReadFile(report.SetAside)
	if err != nil || !bytes.Equal(kept, data) {
		t.Errorf("%s: not kept as it was: %v", what, err)
	}
	if _, err := os.Stat(storeFile(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: still in place: %v", what, err)
	}
	return false
}

// goesOn writes to a file that opened and checks that it was sound for that too.
func goesOn(t *testing.T, what string, data []byte, want map[resource.Key]string) {
	t.Helper()
	dir := t.TempDir()
	lay(t, dir, data)
	s := open(t, dir, Options{})
	want = maps.Clone(want)
	for range 2 { // the second commit reuses the pages that the first freed
		update(t, s, func(tx *Tx) error {
			var err error
			for i := range 20 {
				key := assignmentKey(fmt.Sprint("new", len(want)))
				want[key] = strings.Repeat("new", 200*i)
				err = errors.Join(err, tx.Put(key, []byte(want[key])))
			}
			return err
		})
	}
	closeStore(t, s)
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatalf("%s: after more writes: %v", what, err)
	}
	checkContents(t, s.Snapshot(), want)
	checkByBbolt(t, s)
	closeStore(t, s)
}

func checkByBbolt(t *testing.T, s *Store) {
	t.Helper()
	err := s.file.db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Errorf("bbolt finds what Open does not: %v", err)
	}
}

func TestAnyFlippedByteIsSeenOrHarmless(t *testing.T) {
	sound, want := soundFile(t)
	first, more := 48, 8 // of each page: its header and first elements, and a few of the rest
	if long() {
		first, more = 200, 400
	}
	draw := rand.New(rand.NewPCG(1, 2))
	harmless, reported := 0, 0
	for page := 0; page < len(sound); page += testPage {
		offsets := draw.Perm(testPage)[:more]
		for at := range first {
			offsets = append(offsets, at)
		}
		if !bytes.ContainsFunc(sound[page:][:testPage], func(r rune) bool { return r != 0 }) {
			offsets = offsets[:1] // never used
		}
		for _, at := range offsets {
			data := bytes.Clone(sound)
			data[page+at] ^= byte(1 << draw.IntN(8))
			what := fmt.Sprintf("page %d (flags %d), byte %d", page/testPage, native.Uint16(sound[page+8:]), at)
			if wholeOrReported(t, what, data, want) {
				if harmless++; harmless%20 == 0 {
					goesOn(t, what, data, want)
				}
			} else {
				reported++
			}
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d bytes in %d pages: %d flips harmless, %d reported", len(sound), len(sound)/testPage, harmless, reported)
	if harmless == 0 || reported == 0 {
		t.Error("only one outcome was seen")
	}
}

func TestDamagedFiles(t *testing.T) {
	sound, want := soundFile(t)
	for size := 0; size < len(sound); size += 1000 {
		wholeOrReported(t, fmt.Sprintf("truncated to %d of %d", size, len(sound)), sound[:size], want)
	}
	for page := 0; page < len(sound); page += testPage {
		zeroed, twice := bytes.Clone(sound), bytes.Clone(sound)
		clear(zeroed[page:][:testPage])
		wholeOrReported(t, fmt.Sprintf("page %d zeroed", page/testPage), zeroed, want)
		copy(twice[page:][:testPage], sound[2*testPage:])
		wholeOrReported(t, fmt.Sprintf("page %d overwritten by another", page/testPage), twice, want)
	}
	for _, garbage := range []string{"", "x", "not a database", strings.Repeat("not a database ", 10_000)} {
		if wholeOrReported(t, fmt.Sprintf("%.20q", garbage), []byte(garbage), want) {
			t.Errorf("%.20q was opened", garbage)
		}
	}
	if wholeOrReported(t, "empty", nil, want) {
		t.Error("an empty file was opened")
	}
}

// tampered is sound with something changed by bbolt itself, so that every page is
// in order.
func tampered(t *testing.T, sound []byte, change func(*bbolt.Tx) error) []byte {
	t.Helper()
	dir := t.TempDir()
	lay(t, dir, sound)
	db, err := bbolt.Open(storeFile(dir), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(change), db.Close()); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(storeFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRecordsThatAreNotThoseWritten(t *testing.T) {
	sound, want := soundFile(t)
	resources := func(fn func(*bbolt.Bucket) error) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return fn(tx.Bucket(resourceBucket)) }
	}
	meta := func(key, value []byte) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(key, value) }
	}
	older := newItem(assignmentKey("last"), []byte("an older commit's"), begin)
	for _, test := range []struct {
		name   string
		change func(*bbolt.Tx) error
		says   string
	}{
		{"a record is missing", resources(func(b *bbolt.Bucket) error { return b.Delete(encodeKey(older.Key)) }), "151 records with"},
		{"a record is an older one", resources(func(b *bbolt.Bucket) error { return b.Put(encodeKey(older.Key), older.record) }), "where 152 with"},
		{"a record too many", resources(func(b *bbolt.Bucket) error {
			item := newItem(clusterKey("new"), nil, begin)
			return b.Put(encodeKey(item.Key), item.record)
		}), "153 records"},
		{"a record under another key", resources(func(b *bbolt.Bucket) error { return b.Put(encodeKey(clusterKey("x")), older.record) }), "checksum"},
		{"a short record", resources(func(b *bbolt.Bucket) error { return b.Put(encodeKey(older.Key), []byte("short")) }), "too few"},
		{"a key without type", resources(func(b *bbolt.Bucket) error { return b.Put([]byte("key"), older.record) }), "has no type"},
		{"a bucket among the records", resources(func(b *bbolt.Bucket) error {
			_, err := b.CreateBucket([]byte("bucket"))
			return err
		}), "a bucket in a bucket"},
		{"no records", func(tx *bbolt.Tx) error { return tx.DeleteBucket(resourceBucket) }, "no bucket of resources"},
		{"no schema", func(tx *bbolt.Tx) error { return tx.DeleteBucket(metaBucket) }, "no schema version"},
		{"a broken schema", meta(schemaKey, []byte("12345678")), "schema version: checksum"},
		{"a short schema", meta(schemaKey, []byte("1")), "schema version: wrong size"},
		{"schema 0", meta(schemaKey, encodeSchema(0)), "schema version 0 never was"},
		{"a broken tally", meta(tallyKey, bytes.Repeat([]byte("1"), tallySize)), "tally: checksum"},
		{"a short tally", meta(tallyKey, nil), "tally: wrong size"},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := tampered(t, sound, test.change)
			if wholeOrReported(t, test.name, data, want) {
				t.Error("it was opened")
			}
			dir := t.TempDir()
			lay(t, dir, data)
			if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want word of %q", err, test.says)
			}
		})
	}
}

func TestNewerSchemaIsNotTouched(t *testing.T) {
	sound, _ := soundFile(t)
	data := tampered(t, sound, func(tx *bbolt.Tx) error {
		// A later schema may keep nothing else as it is.
		return errors.Join(tx.DeleteBucket(resourceBucket), tx.Bucket(metaBucket).Delete(tallyKey),
			tx.Bucket(metaBucket).Put(schemaKey, encodeSchema(schemaVersion+1)))
	})
	dir := t.TempDir()
	lay(t, dir, data)
	_, err := Open(dir, Options{})
	var newer *SchemaError
	if !errors.As(err, &newer) || *newer != (SchemaError{Path: storeFile(dir), Found: 2, Supported: 1}) {
		t.Fatalf("got %v", err)
	}
	after, err := os.ReadFile(storeFile(dir))
	if err != nil || !bytes.Equal(after, data) {
		t.Errorf("the file was touched: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, "*")); len(names) != 1 {
		t.Errorf("left lying: %v", names)
	}
}

func TestDamagedFilesAreSetAsideAndNamed(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	opts := Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for _, want := range []string{"lbd.db.damaged-20261120T120000Z", "lbd.db.damaged-20261120T120000Z-2"} {
		lay(t, dir, []byte(want))
		opts.Now = func() time.Time { return begin }
		_, err := Open(dir, opts)
		var report *DamagedError
		if !errors.As(err, &report) || report.Path != storeFile(dir) || report.SetAside != filepath.Join(dir, want) {
			t.Fatalf("got %v", err)
		}
		for _, word := range []string{storeFile(dir), report.SetAside, "no meta page", "restore a backup", "begin empty"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("no word of %q: %v", word, err)
			}
		}
	}
	for range 2 { // whoever starts lbd again and again does not begin empty
		_, err := Open(dir, opts)
		var report *DamagedError
		if !errors.As(err, &report) || report.SetAside != filepath.Join(dir, "lbd.db.damaged-20261120T120000Z-2") || report.Reason != nil {
			t.Fatalf("got %v", err)
		}
		for _, word := range []string{storeFile(dir), report.SetAside, "restore a backup", storeFile(dir) + ".damaged-* away to begin empty"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("no word of %q: %v", word, err)
			}
		}
		if exists(storeFile(dir)) {
			t.Fatal("another file was made")
		}
	}
	log.Reset()
	s, err := Open(dir, Options{Logger: opts.Logger, BeginEmpty: true})
	if err != nil || s.Snapshot().Len() != 0 {
		t.Fatalf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, dir, opts) // there is a file, and those that were set aside are no matter
	for _, want := range []string{"level=WARN", "lbd.db.damaged-20261120T120000Z ", "lbd.db.damaged-20261120T120000Z-2]"} {
		if strings.Count(log.String(), want) != 2 {
			t.Errorf("no word of %q, twice: %s", want, log.String())
		}
	}
}

// A file that is cut short under a running store stops writes, not reads, and not
// the process.
func TestDamagedWhileInUse(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, s, 1000, 1000)
	want := contents(t, s.Snapshot())
	if err := os.Truncate(storeFile(dir), 2*testPage); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Update(t.Context(), func(tx *Tx) error { return tx.Put(clusterKey("a"), []byte("1")) }); !errors.Is(err, ErrCannotWrite) || !strings.Contains(err.Error(), "damaged while in use") {
			t.Errorf("got %v", err)
		}
	}
	checkContents(t, s.Snapshot(), want)
	if err := s.Close(); !errors.Is(err, ErrCannotWrite) {
		t.Errorf("Close: %v", err)
	}
	var report *DamagedError
	if _, err := Open(dir, Options{}); !errors.As(err, &report) {
		t.Errorf("opened again: %v", err)
	}
}

// What a store writes, bbolt finds sound, and Open too.
func TestLayoutOfRandomStores(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	for range 5 {
		s := open(t, dir, Options{})
		for range 10 {
			update(t, s, func(tx *Tx) error {
				var err error
				for range draw.IntN(60) {
					key := clusterKey(strings.Repeat("k", draw.IntN(300)) + fmt.Sprint(draw.IntN(300)))
					if draw.IntN(3) == 0 {
						tx.Delete(key)
						continue
					}
					err = errors.Join(err, tx.Put(key, binary.AppendUvarint(make([]byte, draw.IntN(9000)), draw.Uint64())))
				}
				return err
			})
		}
		checkByBbolt(t, s)
		want := contents(t, s.Snapshot())
		closeStore(t, s)
		again := open(t, dir, Options{})
		checkContents(t, again.Snapshot(), want)
		closeStore(t, again)
	}
}

func FuzzCheckLayout(f *testing.F) {
	dir := f.TempDir()
	s, err := Open(dir, Options{})
	if err != nil {
		f.Fatal(err)
	}
	fill(f, s, 40, 200)
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	data, err := os.ReadFile(storeFile(dir))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(testPage+50), uint64(1))
	f.Add(uint32(5*testPage+12), uint64(1)<<40)
	// Metas keep their checksums, so that what they point to is looked at.
	f.Fuzz(func(_ *testing.T, at uint32, word uint64) {
		bad := bytes.Clone(data)
		at %= uint32(len(bad) - 8)
		native.PutUint64(bad[at:], native.Uint64(bad[at:])^word)
		_ = checkLayout(bad) // it must end, and not panic
	})
}
