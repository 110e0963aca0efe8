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
	"testing"
	"time"
)

func record(path string) *Record {
	return &Record{
		Time: time.Unix(0, 0).UTC(), Caller: "ci", Address: "127.0.0.1:1", Role: "push", Method: "PUT", Path: path, Status: 201,
		Changes: []map[string]string{{"cluster": "orders"}},
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

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Write(record("/v1/clusters/a\nb/endpoints"))
	const want = `{"time":"1970-01-01T00:00:00Z","caller":"ci","address":"127.0.0.1:1","role":"push","method":"PUT",` +
		`"path":"/v1/clusters/a\nb/endpoints","status":201,"changes":[{"cluster":"orders"}]}` + "\n"
	if got := read(t, path); got != want {
		t.Errorf("log %s; want %s", got, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(path, nil, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	l.Write(record("/"))
	if got := read(t, path); strings.Count(got, "\n") != 2 {
		t.Errorf("the log was not appended to: %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	path, rotated := filepath.Join(dir, "audit.log"), filepath.Join(dir, "audit.log.1")
	l, err := Open(path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	l.Write(record("/1"))
	if err := os.Rename(path, rotated); err != nil {
		t.Fatal(err)
	}
	l.Write(record("/2"))
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	l.Write(record("/3"))
	if old, now := read(t, rotated), read(t, path); strings.Count(old, "\n") != 2 || !strings.Contains(now, `"/3"`) {
		t.Errorf("rotated %s, new %s", old, now)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if l.Reopen() == nil {
		t.Error("a directory was opened")
	}
	l.Write(record("/4"))
	if _, err := l.Err(); err != nil {
		t.Errorf("the old file is not in use after a failed Reopen: %v", err)
	}
}

// failing writes so many bytes, then fails.
type failing struct {
	bytes.Buffer

	room int
}

func (f *failing) Write(b []byte) (int, error) {
	if n := min(f.room, len(b)); n < len(b) {
		f.room = 0
		_, _ = f.Buffer.Write(b[:n])
		return n, errors.New("no space left on device")
	}
	f.room -= len(b)
	return f.Buffer.Write(b)
}

func TestWriteFails(t *testing.T) {
	var log bytes.Buffer
	out := &failing{room: 100}
	l, err := Open("-", out, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l.Write(record("/1"))
	l.Write(record("/2"))
	if since, err := l.Err(); err == nil || since.IsZero() || l.failed.Load() != 2 || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("Err() = %v, %d failed, log %s", err, l.failed.Load(), log.String())
	}
	out.room = 1 << 20
	l.Write(record("/3"))
	if _, err := l.Err(); err != nil || l.written.Load() != 1 {
		t.Errorf("Err() = %v after a record was written", err)
	}
}

// A record that was cut off does not spoil the next one.
func TestCutOff(t *testing.T) {
	r, w := io.Pipe()
	lines := make(chan string)
	go func() {
		b := make([]byte, 50)
		n, _ := io.ReadFull(r, b)
		rest, _ := io.ReadAll(r)
		lines <- string(b[:n]) + string(rest)
	}()
	l, err := Open("-", &cutting{w: w, at: 50}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Write(record("/1"))
	l.Write(record("/2"))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	all := strings.Split(strings.TrimSuffix(<-lines, "\n"), "\n")
	if len(all) != 2 || !json.Valid([]byte(all[1])) {
		t.Errorf("lines %q", all)
	}
}

// cutting writes its first line up to a byte only.
type cutting struct {
	w    io.Writer
	at   int
	done bool
}

func (c *cutting) Write(b []byte) (int, error) {
	if c.done {
		return c.w.Write(b)
	}
	c.done = true
	n, err := c.w.Write(b[:c.at])
	return n, errors.Join(err, io.ErrShortWrite)
}

func TestConcurrentWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(path, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
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
