// Package audit writes a log of what callers changed, in JSON lines.
package audit

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
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

const (
	// queueLength is the maximum number of records that wait to be written.
	queueLength = 1024
	// waitTime is how long a request waits for room in the queue, and how long Close waits for the
	// writer.
	waitTime = time.Second
	// maxPath is the maximum length of the path in a record, in bytes.
	maxPath = 1024
	// anonymousRate is the maximum number of records per second of requests without a caller.
	anonymousRate = 10
)

// A Log appends records to a file. One goroutine writes them, so that a blocked file does not
// block requests for long. The methods may be called from any goroutine.
type Log struct {
	path    string
	logger  *slog.Logger
	queue   chan []byte
	closing chan struct{}
	done    chan struct{} // closed when the writer has ended

	mu   sync.Mutex // guards the file, and is held while a record is written
	out  io.Writer
	file *os.File // nil for standard output
	torn bool     // the last line may be cut off

	err                         atomic.Pointer[failure]
	written, failed, suppressed atomic.Uint64

	rate struct {
		mu     sync.Mutex // guards the rest
		second int64
		count  int
	}
}

// failure is why records cannot be written.
type failure struct {
	err   error
	since time.Time
}

// Open opens a log for appending. The path "-" is standard output.
func Open(path string, stdout io.Writer, logger *slog.Logger) (*Log, error) {
	l := &Log{
		path: path, logger: logger, out: stdout,
		queue: make(chan []byte, queueLength), closing: make(chan struct{}), done: make(chan struct{}),
	}
	if path != "-" {
		if err := l.open(); err != nil {
			return nil, err
		}
	}
	go l.write()
	return l, nil
}

func (l *Log) open() error {
	if info, err := os.Stat(l.path); err == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		return &fs.PathError{Op: "open", Path: l.path, Err: errors.New("named pipes are not supported")}
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, Mode)
	if err != nil {
		return err
	}
	l.out, l.file, l.torn = file, file, false
	return nil
}

// Reopen closes the file and opens its path again, so that a log that was renamed continues in a
// new file. If that fails, the log continues in the old one.
func (l *Log) Reopen() error {
	if l.path == "-" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.file
	if err := l.open(); err != nil {
		return err
	}
	return old.Close()
}

// Write queues a record. If the queue is full, it waits 1 s for room; a record without a caller
// does not wait, and is suppressed beyond 10 per second. A record that cannot be written is
// counted. The first failure is logged, and returned by Err until a record is written again.
func (l *Log) Write(r *Record) {
	if r.Caller == "" && !l.allow(r.Time) {
		l.suppressed.Add(1)
		return
	}
	if len(r.Path) > maxPath {
		r.Path = strings.ToValidUTF8(r.Path[:maxPath], "") + "…"
	}
	line, err := json.Marshal(r)
	if err != nil {
		l.fail(err)
		return
	}
	line = append(line, '\n')
	select {
	case l.queue <- line:
		return
	default:
	}
	if r.Caller == "" {
		l.fail(errFull)
		return
	}
	timer := time.NewTimer(waitTime)
	defer timer.Stop()
	select {
	case l.queue <- line:
	case <-timer.C:
		l.fail(errFull)
	}
}

var errFull = errors.New("writing is blocked")

// allow reports whether a record without a caller is within the rate.
func (l *Log) allow(now time.Time) bool {
	l.rate.mu.Lock()
	defer l.rate.mu.Unlock()
	if second := now.Unix(); second != l.rate.second {
		l.rate.second, l.rate.count = second, 0
	}
	l.rate.count++
	return l.rate.count <= anonymousRate
}

func (l *Log) fail(err error) {
	l.failed.Add(1)
	if l.err.CompareAndSwap(nil, &failure{err: err, since: time.Now()}) {
		l.logger.Error("audit log cannot be written", "file", l.path, "error", err)
	}
}

// write writes the queue until the log is closed, and then what is left of it.
func (l *Log) write() {
	defer close(l.done)
	for {
		select {
		case line := <-l.queue:
			l.append(line)
			continue
		default:
		}
		select {
		case line := <-l.queue:
			l.append(line)
		case <-l.closing:
			return
		}
	}
}

// append writes one line. After a failure, it begins on a new line: the last one may be cut off.
func (l *Log) append(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := l.out.Write(line)
	if err != nil {
		l.torn = l.torn || n > 0
		l.fail(err)
		return
	}
	l.torn = false
	l.written.Add(1)
	l.err.Store(nil)
}

// Err returns why records cannot be written, and since when; or nil.
func (l *Log) Err() (since time.Time, err error) {
	if f := l.err.Load(); f != nil {
		return f.since, f.err
	}
	return time.Time{}, nil
}

// Close writes what is queued, for 1 s at most, and closes the file. It must be called once, after
// the last Write.
func (l *Log) Close() error {
	close(l.closing)
	select {
	case <-l.done:
	case <-time.After(waitTime):
		return errFull
	}
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

var recordsDesc = prometheus.NewDesc("lbd_audit_records_total",
	"Records of the audit log by result: written, failed (lost), or suppressed (requests without a caller, beyond 10 per second).", []string{"result"}, nil)

// Describe sends the descriptor of the metric. It is for prometheus.Collector.
func (*Log) Describe(ch chan<- *prometheus.Desc) { ch <- recordsDesc }

// Collect sends the metric. It is for prometheus.Collector.
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(l.written.Load()), "written")
	ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(l.failed.Load()), "failed")
	ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.CounterValue, float64(l.suppressed.Load()), "suppressed")
}
