package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(path string) *Record {
	return &Record{
		Time: time.Unix(0, 0).UTC(), Caller: "ci", Address: "127.0.0.1:1", Role: "push", Method: "PUT", Path: path, Status: 201,
		Changes: []map[string]string{{"cluster": "orders"}},
	}
}

func open(t *testing.T, path string, stdout io.Writer, logger *slog.Logger) *Log {
	t.Helper()
	l, err := Open(path, stdout, logger)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// finish closes a log, so that all records are written.
func finish(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var discard = slog.New(slog.DiscardHandler)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, nil, discard)
	l.Write(record("/v1/clusters/a\nb/endpoints"))
	finish(t, l)
	const want = `{"time":"1970-01-01T00:00:00Z","caller":"ci","address":"127.0.0.1:1","role":"push","method":"PUT",` +
		`"path":"/v1/clusters/a\nb/endpoints","status":201,"changes":[{"cluster":"orders"}]}` + "\n"
	if got := read(t, path); got != want {
		t.Errorf("log %s; want %s", got, want)
	}
	l = open(t, path, nil, discard)
	l.Write(record("/" + strings.Repeat("x", 2*maxPath)))
	finish(t, l)
	if got := read(t, path); strings.Count(got, "\n") != 2 || len(got) > 2*maxPath {
		t.Errorf("the log has %d bytes: %s", len(got), got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	path, rotated := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.log.1")
	l := open(t, path, nil, discard)
	if err := os.Rename(path, rotated); err != nil {
		t.Fatal(err)
	}
	l.Write(record("/1"))
	for l.written.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Rename(path, path+".2"), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if l.Reopen() == nil {
		t.Error("a directory was opened")
	}
	l.Write(record("/2")) // to the file that is open
	finish(t, l)
	if old, now := read(t, rotated), read(t, path+".2"); !strings.Contains(old, `"/1"`) || strings.Contains(old, `"/2"`) || !strings.Contains(now, `"/2"`) {
		t.Errorf("rotated %s, new %s", old, now)
	}
}

// failing writes so many bytes, then fails.
type failing struct {
	bytes.Buffer

	room atomic.Int64
}

func (f *failing) Write(b []byte) (int, error) {
	n := min(f.room.Load(), int64(len(b)))
	f.room.Add(-n)
	_, _ = f.Buffer.Write(b[:n])
	if n < int64(len(b)) {
		return int(n), errors.New("no space left on device")
	}
	return int(n), nil
}

// A line that was cut off does not spoil the next one, however late that can be written.
func TestWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		out := &failing{}
		out.room.Store(100)
		l := open(t, "-", out, slog.New(slog.NewTextHandler(&log, nil)))
		l.Write(record("/1"))
		l.Write(record("/2"))
		synctest.Wait()
		if since, err := l.Err(); err == nil || since.IsZero() || l.failed.Load() != 2 || strings.Count(log.String(), "level=ERROR") != 1 {
			t.Errorf("Err() = %v, %d failed, log %s", err, l.failed.Load(), log.String())
		}
		out.room.Store(1 << 20)
		l.Write(record("/3"))
		l.Write(record("/4"))
		synctest.Wait()
		if _, err := l.Err(); err != nil || l.written.Load() != 2 {
			t.Errorf("Err() = %v after a record was written", err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != 3 || !json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
			t.Errorf("lines %q", lines)
		}
		finish(t, l)
	})
}

// blocked writes nothing until it is released.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// A log that cannot be written blocks a request for a second, one without a caller not at all, and
// closing for a second.
func TestBlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(blocked)
		l := open(t, "-", out, discard)
		l.Write(record("/"))
		synctest.Wait() // the writer has it
		for range queueLength {
			l.Write(record("/"))
		}
		start := time.Now()
		l.Write(record("/"))
		if took := time.Since(start); took != waitTime || l.failed.Load() != 1 {
			t.Errorf("waited %v, %d failed", took, l.failed.Load())
		}
		anonymous := record("/")
		anonymous.Caller = ""
		start = time.Now()
		l.Write(anonymous)
		if took := time.Since(start); took != 0 || l.failed.Load() != 2 {
			t.Errorf("without a caller: waited %v, %d failed", took, l.failed.Load())
		}
		start = time.Now()
		if err := l.Close(); err == nil || time.Since(start) != waitTime {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		close(out)
		<-l.done
	})
}

func TestAnonymousRecordsAreLimited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, nil, discard)
	for second := range int64(3) {
		for range 100 {
			r := record("/")
			r.Caller, r.Time = "", time.Unix(second, 0)
			l.Write(r)
		}
	}
	finish(t, l)
	if got := strings.Count(read(t, path), "\n"); got != 3*anonymousRate || l.suppressed.Load() != 300-3*anonymousRate {
		t.Errorf("%d records, %d suppressed", got, l.suppressed.Load())
	}
}

func TestConcurrentWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, nil, discard)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 100 {
				l.Write(record(fmt.Sprintf("/%d/%d", i, n)))
				if n%25 == 0 {
					if err := l.Reopen(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	finish(t, l)
	lines := strings.Split(strings.TrimSuffix(read(t, path), "\n"), "\n")
	if len(lines) != 400 {
		t.Errorf("%d lines; want 400", len(lines))
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Fatalf("line %q", line)
		}
	}
}
