// Package logfile appends lines to log files that other programs rotate.
package logfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Mode is the mode of a log file that is created.
	Mode = 0o640
	// CloseTime is the maximum time that Close waits for the lines that are queued.
	CloseTime = time.Second
	// batchBytes is the size above which no more lines are added to one write.
	batchBytes = 64 << 10
)

// ErrFull says that the queue is full, because the file is slower than those who write.
var ErrFull = errors.New("writing is blocked")

// Options configure a File.
type Options struct {
	// Path is that of the file; "-" is Stdout.
	Path   string
	Stdout io.Writer
	// Name is that of the log in messages: "audit log".
	Name string
	// Queue is the maximum number of lines that wait to be written.
	Queue  int
	Logger *slog.Logger
	// Metric counts the lines by result: written, failed, or Dropped, as they are not even queued. Its help is Help.
	Metric, Help, Dropped string
}

// A File is a log file. One goroutine writes its lines, so that a blocked file does not block those who
// append. The methods may be called from any goroutine.
type File struct {
	options Options
	queue   chan []byte
	closing chan struct{}
	done    chan struct{} // closed when the writer has ended

	mu   sync.Mutex // guards the file, and is held while lines are written
	out  io.Writer
	file *os.File // nil for standard output
	torn bool     // the last line may be cut off

	err                      atomic.Pointer[failure]
	written, failed, dropped atomic.Uint64
	desc                     *prometheus.Desc
}

// failure is why lines cannot be written.
type failure struct {
	err   error
	since time.Time
}

// Open opens a file for appending.
func Open(o Options) (*File, error) {
	f := &File{options: o, out: o.Stdout, queue: make(chan []byte, o.Queue), closing: make(chan struct{}), done: make(chan struct{})}
	f.desc = prometheus.NewDesc(o.Metric, o.Help, []string{"result"}, nil)
	if o.Path != "-" {
		if err := f.open(); err != nil {
			return nil, err
		}
	}
	go f.write()
	return f, nil
}

func (f *File) open() error {
	path := f.options.Path
	if info, err := os.Stat(path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return &fs.PathError{Op: "open", Path: path, Err: errors.New("named pipes are not supported")}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, Mode)
	if err != nil {
		return err
	}
	f.out, f.file, f.torn = file, file, false
	return nil
}

// Reopen closes the file and opens its path again, so that a log that was renamed continues in a
// new file. If that fails, the log continues in the old one.
func (f *File) Reopen() error {
	if f.options.Path == "-" {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.file
	if err := f.open(); err != nil {
		return err
	}
	return old.Close()
}

// AppendJSON appends a value as a line of JSON. A value that has none is lost.
func (f *File) AppendJSON(v any, wait time.Duration) bool {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line) // it ends the line
	encoder.SetEscapeHTML(false)      // paths have &
	if err := encoder.Encode(v); err != nil {
		f.Fail(1, err)
		return true
	}
	return f.Append(line.Bytes(), wait)
}

// Append queues a line, which ends with a line feed. It waits for room in the queue, or not at all, and
// reports false if there is none.
func (f *File) Append(line []byte, wait time.Duration) bool {
	select {
	case f.queue <- line:
		return true
	default:
	}
	if wait == 0 {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case f.queue <- line:
		return true
	case <-timer.C:
		return false
	}
}

// Fail counts lines that are lost. The first failure is logged, and returned by Err until a line is
// written again.
func (f *File) Fail(lines int, err error) {
	f.failed.Add(uint64(lines))
	if f.err.CompareAndSwap(nil, &failure{err: err, since: time.Now()}) {
		f.options.Logger.Error("log cannot be written", "log", f.options.Name, "file", f.options.Path, "error", err)
	}
}

// write writes the queue until the file is closed, and then what is left of it.
func (f *File) write() {
	defer close(f.done)
	var batch []byte
	for {
		select {
		case line := <-f.queue:
			batch = f.append(append(batch[:0], line...))
		case <-f.closing:
			if len(f.queue) == 0 {
				return
			}
		}
	}
}

// append writes a line, and those that are queued. After a failure, it begins on a new line: the last
// one may be cut off.
func (f *File) append(batch []byte) []byte {
	lines := 1
	for more := true; more && len(batch) < batchBytes; {
		select {
		case line := <-f.queue:
			batch = append(batch, line...)
			lines++
		default:
			more = false
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.torn {
		if _, err := f.out.Write([]byte{'\n'}); err != nil {
			f.Fail(lines, err)
			return batch
		}
		f.torn = false
	}
	n, err := f.out.Write(batch)
	if err != nil {
		whole := bytes.Count(batch[:n], []byte{'\n'})
		f.torn = n > 0 && batch[n-1] != '\n'
		f.written.Add(uint64(whole))
		f.Fail(lines-whole, err)
		return batch
	}
	f.written.Add(uint64(lines))
	f.err.Store(nil)
	return batch
}

// Err returns why lines cannot be written, and since when; or nil.
func (f *File) Err() (since time.Time, err error) {
	if e := f.err.Load(); e != nil {
		return e.since, e.err
	}
	return time.Time{}, nil
}

// Name returns the name of the log in messages.
func (f *File) Name() string { return f.options.Name }

// Drop counts a line that is not queued.
func (f *File) Drop() { f.dropped.Add(1) }

// Written returns the number of lines that were written.
func (f *File) Written() uint64 { return f.written.Load() }

// Failed returns the number of lines that are lost.
func (f *File) Failed() uint64 { return f.failed.Load() }

// Dropped returns the number of calls of Drop.
func (f *File) Dropped() uint64 { return f.dropped.Load() }

// Describe sends the descriptor of the metric. It is for prometheus.Collector.
func (f *File) Describe(ch chan<- *prometheus.Desc) { ch <- f.desc }

// Collect sends the metric. It is for prometheus.Collector.
func (f *File) Collect(ch chan<- prometheus.Metric) {
	for result, n := range map[string]uint64{"written": f.Written(), "failed": f.Failed(), f.options.Dropped: f.Dropped()} {
		ch <- prometheus.MustNewConstMetric(f.desc, prometheus.CounterValue, float64(n), result)
	}
}

// Close writes what is queued, for CloseTime at most, and closes the file. It must be called once,
// after the last line.
func (f *File) Close() error {
	close(f.closing)
	select {
	case <-f.done:
	case <-time.After(CloseTime):
		return ErrFull
	}
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
