// Package audit writes a log of what callers changed, in JSON lines.
package audit

import (
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/logfile"
)

// A Record is one line.
type Record struct {
	Time time.Time `json:"time"`
	// Caller is the name of the identity; empty if there is none.
	Caller string `json:"caller,omitempty"`
	// Expired is the name of the identity if it has expired.
	Expired string `json:"expired,omitempty"`
	// Address is the address of the peer, or unix.
	Address string `json:"address"`
	// UID and PID are the user and the process that connected to a unix socket, if they are
	// known.
	UID *uint32 `json:"uid,omitempty"`
	PID int32   `json:"pid,omitempty"`
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
	// waitTime is how long a request waits for room in the queue.
	waitTime = time.Second
	// maxPath is the maximum length of the path in a record, in bytes.
	maxPath = 1024
	// anonymousRate is the maximum number of records per second of requests without a caller.
	anonymousRate = 10
)

// A Log appends records to a file. A blocked file does not block requests for long. The methods may be
// called from any goroutine.
type Log struct {
	*logfile.File

	rate struct {
		mu     sync.Mutex // guards the rest
		second int64
		count  int
	}
}

// Open opens a log for appending. The path "-" is standard output.
func Open(path string, stdout io.Writer, logger *slog.Logger) (*Log, error) {
	file, err := logfile.Open(logfile.Options{
		Path: path, Stdout: stdout, Name: "audit log", Queue: queueLength, Logger: logger, Metric: "lbd_audit_records_total", Dropped: "suppressed",
		Help: "Records of the audit log by result: written, failed (lost), or suppressed (requests without a caller, beyond 10 per second).",
	})
	return &Log{File: file}, err
}

// Write queues a record. If the queue is full, it waits 1 s for room; a record without a caller
// does not wait, and is suppressed beyond 10 per second. A record that cannot be written is
// counted. The first failure is logged, and returned by Err until a record is written again.
func (l *Log) Write(r *Record) {
	if r.Caller == "" && !l.allow(r.Time) {
		l.Drop()
		return
	}
	if len(r.Path) > maxPath {
		r.Path = strings.ToValidUTF8(r.Path[:maxPath], "") + "…"
	}
	wait := waitTime
	if r.Caller == "" {
		wait = 0
	}
	if !l.AppendJSON(r, wait) {
		l.Fail(1, logfile.ErrFull)
	}
}

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
