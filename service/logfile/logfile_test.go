package logfile

import (
	"bytes"
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

	"github.com/lbd-dev/lbd/test/must"
)

var noError = must.NoError

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const queue = 16

func open(t *testing.T, path string, stdout io.Writer, logger *slog.Logger) *File {
	t.Helper()
	f, err := Open(Options{Path: path, Stdout: stdout, Name: "test log", Queue: queue, Logger: logger})
	noError(t, err)
	return f
}

// write appends a line, and waits for room.
func write(t *testing.T, f *File, line string) {
	t.Helper()
	if !f.Append([]byte(line+"\n"), time.Minute) {
		t.Error("no room in the queue")
	}
}

// finish closes a file, so that all lines are written.
func finish(t *testing.T, f *File) {
	t.Helper()
	noError(t, f.Close())
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	noError(t, err)
	return string(b)
}

var discard = slog.New(slog.DiscardHandler)

func TestReopen(t *testing.T) {
	dir := t.TempDir()
	path, rotated := filepath.Join(dir, "test.log"), filepath.Join(dir, "test.log.1")
	f := open(t, path, nil, discard)
	noError(t, os.Rename(path, rotated))
	write(t, f, "1")
	for f.Written() == 0 {
		time.Sleep(time.Millisecond)
	}
	noError(t, f.Reopen())
	noError(t, errors.Join(os.Rename(path, path+".2"), os.Mkdir(path, 0o700)))
	if f.Reopen() == nil {
		t.Error("a directory was opened")
	}
	write(t, f, "2") // to the file that is open
	finish(t, f)
	if old, now := read(t, rotated), read(t, path+".2"); !strings.Contains(old, "1") || strings.Contains(old, "2") || !strings.Contains(now, "2") {
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
		out.room.Store(7)
		f := open(t, "-", out, slog.New(slog.NewTextHandler(&log, nil)))
		for _, line := range []string{"one", "two", "three"} { // the second is cut off
			write(t, f, line)
		}
		synctest.Wait()
		if since, err := f.Err(); err == nil || since.IsZero() || f.Written() != 1 || f.Failed() != 2 || strings.Count(log.String(), "level=ERROR") != 1 {
			t.Errorf("Err() = %v, %d written, %d failed, log %s", err, f.Written(), f.Failed(), log.String())
		}
		write(t, f, "four") // there is still no room
		synctest.Wait()
		out.room.Store(1 << 20)
		write(t, f, "five")
		write(t, f, "six")
		synctest.Wait()
		if _, err := f.Err(); err != nil || f.Written() != 3 || f.Failed() != 3 {
			t.Errorf("Err() = %v, %d written, %d failed after a line was written", err, f.Written(), f.Failed())
		}
		if got := out.String(); got != "one\ntwo\nfive\nsix\n" {
			t.Errorf("the file is %q", got)
		}
		finish(t, f)
	})
}

// blocked writes nothing until it is released.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// Lines wait for a file that is blocked, as many as the queue has room for; Close waits for a second.
func TestBlockedFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(blocked)
		f := open(t, "-", out, discard)
		write(t, f, "0")
		synctest.Wait() // the writer has it
		for range queue {
			if !f.Append([]byte("x\n"), 0) {
				t.Error("no room in the queue")
			}
		}
		start := time.Now()
		if f.Append(nil, 0) || time.Since(start) != 0 {
			t.Errorf("room beyond the queue, after %v", time.Since(start))
		}
		if f.Append(nil, time.Second) || time.Since(start) != time.Second {
			t.Errorf("room beyond the queue, after %v", time.Since(start))
		}
		start = time.Now()
		if err := f.Close(); err == nil || time.Since(start) != CloseTime {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		close(out)
		synctest.Wait()
		if f.Written() != queue+1 {
			t.Errorf("%d lines are written", f.Written())
		}
	})
}

func TestConcurrentWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.log")
	f := open(t, path, nil, discard)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 100 {
				write(t, f, fmt.Sprintf("%d/%d", i, n))
				if n%25 == 0 {
					if err := f.Reopen(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	finish(t, f)
	lines := map[string]bool{}
	for line := range strings.Lines(read(t, path)) {
		lines[line] = true
	}
	if len(lines) != 400 || f.Written() != 400 || f.Failed() != 0 {
		t.Errorf("%d lines, %d written, %d failed", len(lines), f.Written(), f.Failed())
	}
}
