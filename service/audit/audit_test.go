package audit

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

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
	noError(t, err)
	return l
}

// finish closes a log, so that all records are written.
func finish(t *testing.T, l *Log) {
	t.Helper()
	noError(t, l.Close())
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	noError(t, err)
	return string(b)
}

var discard = slog.New(slog.DiscardHandler)

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, nil, discard)
	l.Write(record("/v1/clusters/a\nb/endpoints?dry_run=true&strict=<a>"))
	finish(t, l)
	const want = `{"time":"1970-01-01T00:00:00Z","caller":"ci","address":"127.0.0.1:1","role":"push","method":"PUT",` +
		`"path":"/v1/clusters/a\nb/endpoints?dry_run=true&strict=<a>","status":201,"changes":[{"cluster":"orders"}]}` + "\n"
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
		if took := time.Since(start); took != waitTime || l.Failed() != 1 {
			t.Errorf("waited %v, %d failed", took, l.Failed())
		}
		anonymous := record("/")
		anonymous.Caller = ""
		start = time.Now()
		l.Write(anonymous)
		if took := time.Since(start); took != 0 || l.Failed() != 2 {
			t.Errorf("without a caller: waited %v, %d failed", took, l.Failed())
		}
		start = time.Now()
		if err := l.Close(); err == nil || time.Since(start) != waitTime {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		close(out)
		synctest.Wait() // the writer has ended
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
	if got := strings.Count(read(t, path), "\n"); got != 3*anonymousRate || l.Dropped() != 300-3*anonymousRate {
		t.Errorf("%d records, %d suppressed", got, l.Dropped())
	}
}
