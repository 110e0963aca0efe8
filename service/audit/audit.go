// Package audit writes a log of what callers changed, in JSON lines.
package audit

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Mode is the mode of a log file that is created.
const Mode = 0o640

// A Record is one line.
type Record struct {
	Time time.Time `json:"time"`
	// Caller is the name of the identity; empty if there is none.
	Caller string `json:"caller,omitempty"`
	// Address is the address of the peer, or unix.
	Address string `json:"address"`
	// Role is the one that the request requires.
	Role   string `json:"role"`
	Method string `json:"method"`
	// Path has the query.
	Path   string `json:"path"`
	Status int    `json:"status"`
	// Code is the error code of a rejected request.
	Code string `json:"code,omitempty"`
	// Changes are what the request changed, or what its dry run would change.
	Changes any `json:"changes,omitempty"`
}

// A Log appends records to a file. Its methods may be called from any goroutine.
type Log struct {
	path   string
	logger *slog.Logger

	mu     sync.Mutex // guards the rest, and is held while a record is written
	out    io.Writer
	file   *os.File // nil for standard output
	buffer []byte

	err             atomic.Pointer[failure]
	written, failed atomic.Uint64
}

// failure is why records cannot be written.
type failure struct {
	err   error
	since time.Time
}

// Open opens a log for appending. The path "-" is standard output.
func Open(path string, stdout io.Writer, logger *slog.Logger) (*Log, error) {
	l := &Log{path: path, logger: logger, out: stdout}
	if path == "-" {
		return l, nil
	}
	if err := l.open(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, Mode)
	if err != nil {
		return err
	}
	l.out, l.file = file, file
	return nil
}

// Reopen closes the file and opens its path again, so that a log that was renamed
// continues in a new file. If that fails, the log continues in the old one.
func (l *Log) Reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.file
	if old == nil {
		return nil
	}
	if err := l.open(); err != nil {
		return err
	}
	return old.Close()
}

// Write appends a record. When it returns, the record is with the operating
// system. A failure is logged once, counted, and returned by Err until a record is
// written again.
func (l *Log) Write(r *Record) {
	line, err := json.Marshal(r)
	if err == nil {
		err = l.append(line)
	}
	if err == nil {
		l.written.Add(1)
		l.err.Store(nil)
		return
	}
	l.failed.Add(1)
	if l.err.CompareAndSwap(nil, &failure{err: err, since: time.Now()}) {
		l.logger.Error("audit log cannot be written", "file", l.path, "error", err)
	}
}

// append writes one line at once: a line is whole or, on a full disk, cut off at
// the end of the file, where the next line begins on a line of its own.
func (l *Log) append(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer = append(append(l.buffer[:0], line...), '\n')
	n, err := l.out.Write(l.buffer)
	if err != nil && n > 0 {
		_, newline := l.out.Write([]byte{'\n'})
		err = errors.Join(err, newline)
	}
	return err
}

// Err returns why records cannot be written, and since when; or nil.
func (l *Log) Err() (since time.Time, err error) {
	if f := l.err.Load(); f != nil {
		return f.since, f.err
	}
	return time.Time{}, nil
}

// Close closes the file. Records that are written later fail.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

var recordsDesc = prometheus.NewDesc("lbd_audit_records_total",
	"Records of the audit log by result: written or failed. A failed record is lost.", []string{"result"}, nil)

// Describe sends the descriptor of the metric. It is for prometheus.Collector.
func (*Log) Describe(ch chan<- *prometheus.Desc) { ch <- recordsDesc }

// Collect sends the metric. It is for prometheus.Collector.
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(l.written.Load()), "written")
	ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(l.failed.Load()), "failed")
}
