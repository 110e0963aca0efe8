package file

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// boltFile is a file of an earlier version, with 152 entries.
func boltFile(t *testing.T) []byte {
	t.Helper()
	packed, err := os.ReadFile("boltfile/testdata/pages.db.gz")
	noError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(packed))
	noError(t, err)
	data, err := io.ReadAll(z)
	noError(t, err)
	return data
}

func checkMigrated(t *testing.T, dir string, old []byte) {
	t.Helper()
	var log bytes.Buffer
	s := open(t, dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if s.Snapshot().Len() != 152 || !strings.Contains(log.String(), "was migrated") {
		t.Errorf("%d entries, logged %s", s.Snapshot().Len(), log.String())
	}
	if e, found := s.Snapshot().Get(assignmentKey("last")); !found || string(e.Raw) != "the last commit's" || !e.Updated.Equal(begin) {
		t.Errorf("the last commit's entry: %v, %v", found, e)
	}
	put(t, s, clusterKey("new"), "1")
	want := contentsOf(t, s.Snapshot())
	closeStore(t, s)
	again := open(t, dir, Options{})
	checkContents(t, again.Snapshot(), want)
	closeStore(t, again)
	kept, err := os.ReadFile(storeFile(dir) + ".migrated")
	if err != nil || !bytes.Equal(kept, old) {
		t.Errorf("the old file is not kept as it was: %v", err)
	}
}

func TestAFileOfAnEarlierVersionIsMigrated(t *testing.T) {
	old := boltFile(t)
	for name, prepare := range map[string]func(dir string) error{
		"once":                  func(string) error { return nil },
		"after an interruption": func(dir string) error { return os.Link(storeFile(dir), storeFile(dir)+".migrated") },
		"after half a new file": func(dir string) error { return os.WriteFile(storeFile(dir)+".new", old[:5000], 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			lay(t, dir, old)
			noError(t, prepare(dir))
			checkMigrated(t, dir, old)
			checkFiles(t, dir, 2)
			// A backup from before the migration is migrated again.
			lay(t, dir, old)
			s := open(t, dir, Options{})
			if s.Snapshot().Len() != 152 || !exists(storeFile(dir)+".migrated-2") {
				t.Errorf("restored: %d entries", s.Snapshot().Len())
			}
		})
	}
}

func TestADamagedFileOfAnEarlierVersionIsSetAside(t *testing.T) {
	old := boltFile(t)
	at := bytes.Index(old, []byte("the last commit's"))
	for name, data := range map[string][]byte{"a record": flipped(old, int64(at)), "truncated": old[:5000], "the older meta page": flipped(old, 60)} {
		dir := t.TempDir()
		lay(t, dir, data)
		_, err := Open(dir, Options{})
		report, ok := errors.AsType[*DamagedError](err)
		if !ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if kept, err := os.ReadFile(report.SetAside); err != nil || !bytes.Equal(kept, data) || exists(storeFile(dir)) {
			t.Errorf("%s: not set aside as it was: %v", name, err)
		}
	}
}
