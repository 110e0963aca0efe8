package file

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/xds/resource"
	"github.com/lbd-dev/lbd/xds/store"
)

// A commitEnd is the state after a commit, and where the commit ends in the file.
type commitEnd struct {
	size int64
	want map[resource.Key]string
}

// soundFile makes a small file of several commits, as it is after Close, and returns
// its bytes and what it holds after each commit, the empty store first.
func soundFile(t *testing.T) ([]byte, []commitEnd) {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir, Options{})
	var ends []commitEnd
	note := func() { ends = append(ends, commitEnd{fileSize(t, s), contentsOf(t, s.Snapshot())}) }
	note()
	fill(t, s, 5, 20)
	note()
	put(t, s, assignmentKey("empty"), "")
	note()
	update(t, s, func(tx *store.Tx) error {
		tx.Delete(clusterKey("cluster-00001"))
		return errors.Join(tx.Put(clusterKey("cluster-00002"), []byte("changed")), tx.Put(assignmentKey("long"), bytes.Repeat([]byte("long "), 100)))
	})
	note()
	put(t, s, assignmentKey("last"), "the last commit's")
	note()
	closeStore(t, s)
	data, err := os.ReadFile(storeFile(dir))
	noError(t, err)
	return data, ends
}

// upTo is the last commit that ends within size bytes.
func upTo(ends []commitEnd, size int64) map[resource.Key]string {
	i, _ := slices.BinarySearchFunc(ends, size+1, func(e commitEnd, size int64) int { return int(e.size - size) })
	if i == 0 {
		return nil
	}
	return ends[i-1].want
}

func lay(t *testing.T, dir string, data []byte) {
	t.Helper()
	noError(t, os.WriteFile(storeFile(dir), data, 0o600))
}

// What is cut off stays cut off, and writes go on behind the last commit.
func TestAStoreGoesOnAfterAnUnfinishedWrite(t *testing.T) {
	sound, ends := soundFile(t)
	acknowledged := ends[2]
	header, _ := encodeHeader(acknowledged.size)
	for _, size := range []int64{acknowledged.size, acknowledged.size + 1, ends[3].size - 1, ends[3].size, int64(len(sound))} {
		dir := t.TempDir()
		lay(t, dir, append(bytes.Clone(header), sound[headerSize:size]...))
		var log bytes.Buffer
		s := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		want := maps.Clone(upTo(ends, size))
		checkContents(t, s.Snapshot(), want)
		if unfinished := fileSize(t, s) != size; unfinished != strings.Contains(log.String(), "was not finished") {
			t.Errorf("written to %d: logged %q", size, log.String())
		}
		if info, err := os.Stat(storeFile(dir)); err != nil || info.Size() != fileSize(t, s) {
			t.Errorf("written to %d: %v, %v", size, info.Size(), err)
		}
		put(t, s, clusterKey("new"), "1")
		want[clusterKey("new")] = "1"
		checkReopened(t, s, dir, want)
	}
}

func TestADamagedFileIsSetAsideWithWhatIsIntact(t *testing.T) {
	sound, ends := soundFile(t)
	for name, test := range map[string]struct {
		data   []byte
		intact map[resource.Key]string
		says   string
	}{
		"empty":            {nil, nil, "truncated to 0 bytes"},
		"garbage":          {[]byte(strings.Repeat("not a store ", 1000)), nil, "not a file that lbd wrote"},
		"no header":        {sound[:headerSize-1], nil, "truncated to 27 bytes"},
		"cut in the end":   {sound[:len(sound)-1], ends[3].want, "truncated from"},
		"cut between":      {sound[:ends[3].size], ends[3].want, "truncated from"},
		"damaged between":  {flipped(sound, ends[3].size-20), ends[2].want, "checksum mismatch"},
		"damaged at first": {flipped(sound, headerSize+20), nil, "checksum mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lay(t, dir, test.data)
			_, err := Open(dir, Options{})
			report, ok := errors.AsType[*DamagedError](err)
			if !ok || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("got %v", err)
			}
			kept, err := os.ReadFile(report.SetAside)
			if err != nil || !bytes.Equal(kept, test.data) {
				t.Errorf("not kept as it was: %v", err)
			}
			if exists(storeFile(dir)) {
				t.Error("still in place")
			}
			if (report.Intact != "") != (test.intact != nil) {
				t.Fatalf("intact is in %q", report.Intact)
			}
			if test.intact == nil {
				return
			}
			if !strings.Contains(report.Error(), report.Intact) {
				t.Errorf("%v does not name %s", report, report.Intact)
			}
			noError(t, os.Rename(report.Intact, storeFile(dir)))
			checkContents(t, open(t, dir, Options{}).Snapshot(), test.intact)
		})
	}
}

func flipped(data []byte, at int64) []byte {
	data = bytes.Clone(data)
	data[at] ^= 1
	return data
}

func TestNewerSchemaIsNotTouched(t *testing.T) {
	data, _ := encodeHeader(0)
	data[versionOffset+3]++
	copy(data[sumOffset:], be32(store.Checksum(0, data[:sumOffset])))
	data = append(data[:ackOffset], "all that follows may be different"...)
	dir := t.TempDir()
	lay(t, dir, data)
	_, err := Open(dir, Options{})
	var newer *SchemaError
	if !errors.As(err, &newer) || *newer != (SchemaError{Path: storeFile(dir), Found: schemaVersion + 1, Supported: schemaVersion}) {
		t.Fatalf("got %v", err)
	}
	after, err := os.ReadFile(storeFile(dir))
	if err != nil || !bytes.Equal(after, data) {
		t.Errorf("the file was touched: %v", err)
	}
	checkFiles(t, dir, 1)
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
		for _, word := range []string{storeFile(dir), report.SetAside, "not a file that lbd wrote", "restore a backup", "begin empty"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q is missing: %v", word, err)
			}
		}
	}
	for range 2 { // a supervisor that starts lbd again and again does not make it begin empty
		_, err := Open(dir, opts)
		var report *DamagedError
		if !errors.As(err, &report) || report.SetAside != filepath.Join(dir, "lbd.db.damaged-20261120T120000Z-2") || report.Reason != nil {
			t.Fatalf("got %v", err)
		}
		for _, word := range []string{storeFile(dir), report.SetAside, "restore a backup", storeFile(dir) + ".damaged-* away to begin empty"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q is missing: %v", word, err)
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
	noError(t, s.Close())
	open(t, dir, opts) // there is a file, and those that were set aside do not matter
	for _, want := range []string{"level=WARN", "lbd.db.damaged-20261120T120000Z ", "lbd.db.damaged-20261120T120000Z-2]"} {
		if strings.Count(log.String(), want) != 2 {
			t.Errorf("%q is not logged twice: %s", want, log.String())
		}
	}
}

// A file that another program changes under a running store stops writes, but neither
// reads nor the process.
func TestChangedWhileInUse(t *testing.T) {
	for name, size := range map[string]int64{"truncated": 100, "emptied": 0, "extended": 1 << 21} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, Options{})
			fill(t, s, 1000, 1000)
			want := contentsOf(t, s.Snapshot())
			sound := fileSize(t, s)
			noError(t, os.Truncate(storeFile(dir), size))
			for range 2 {
				var lost *LostError
				if err := tryPut(t, s, "1"); !errors.Is(err, store.ErrCannotWrite) || !errors.As(err, &lost) || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes, where lbd wrote %d", size, sound)) {
					t.Errorf("got %v", err)
				}
			}
			checkContents(t, s.Snapshot(), want)
			closeStore(t, s)
			if size > sound {
				checkContents(t, open(t, dir, Options{}).Snapshot(), want)
				return
			}
			if _, err := Open(dir, Options{}); !errors.As(err, new(*DamagedError)) {
				t.Errorf("opened again: %v", err)
			}
		})
	}
}

// Random stores are read as they were written, whatever was compacted in between.
func TestRandomStores(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	want := map[resource.Key]string{}
	smaller := 0
	for range 5 {
		s := open(t, dir, Options{})
		for range 20 {
			before := fileSize(t, s)
			update(t, s, func(tx *store.Tx) error {
				var err error
				for range draw.IntN(60) {
					key := clusterKey(strings.Repeat("k", draw.IntN(300)) + fmt.Sprint(draw.IntN(3)))
					if draw.IntN(3) == 0 {
						tx.Delete(key)
						delete(want, key)
						continue
					}
					want[key] = strings.Repeat(fmt.Sprint(draw.Uint64()), draw.IntN(900))
					err = errors.Join(err, tx.Put(key, []byte(want[key])))
				}
				return err
			})
			if fileSize(t, s) < before {
				smaller++
			}
		}
		checkContents(t, s.Snapshot(), want)
		closeStore(t, s)
	}
	checkContents(t, open(t, dir, Options{}).Snapshot(), want)
	if smaller == 0 {
		t.Error("the file was never compacted")
	}
}
