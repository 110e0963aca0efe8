// Package accesslog writes a log of all requests, in JSON lines.
package accesslog

import (
	"io"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/lbd-dev/lbd/service/logfile"
)

const (
	// QueueLength is the maximum number of lines that wait to be written.
	QueueLength = 8192
	// maxPath is the maximum length of the path in a line, in bytes.
	maxPath = 1024
	// leaseBytes is how much of the ID of a lease is logged.
	leaseBytes = 6
)

// Entry is one line.
type Entry struct {
	Time time.Time `json:"time"` // of the request
	// Caller is the name of the identity; empty if there is none.
	Caller string `json:"caller,omitempty"`
	// Address is the address of the peer, or unix.
	Address string `json:"address"`
	// Listener is the address of the listener.
	Listener string `json:"listener,omitempty"`
	Method   string `json:"method"`
	// Path has the query, as [Path] returns it.
	Path   string `json:"path"`
	Status int    `json:"status"`
	// Code is the error code of a rejected request.
	Code string `json:"code,omitempty"`
	// Bytes is the length of the body of the response.
	Bytes int64 `json:"bytes"`
	// Duration is the time in seconds until the response was written.
	Duration float64 `json:"duration"`
}

// A Log appends entries to a file. It never blocks: entries for which there is no room are dropped. The
// methods may be called from any goroutine.
type Log struct{ *logfile.File }

// Open opens a log for appending. The path "-" is standard output.
func Open(path string, stdout io.Writer, logger *slog.Logger) (*Log, error) {
	file, err := logfile.Open(logfile.Options{
		Path: path, Stdout: stdout, Name: "access log", Queue: QueueLength, Logger: logger, Metric: "lbd_access_log_lines_total", Dropped: "dropped",
		Help: "Lines of the access log by result: written, failed (the file cannot be written), or dropped (the file is too slow).",
	})
	return &Log{file}, err
}

// Write queues an entry.
func (l *Log) Write(e *Entry) {
	if !l.AppendJSON(e, 0) {
		l.Drop()
	}
}

// logged are the parameters whose values are logged. Others may be secrets: hash keys, headers of
// requests, IDs of leases, and tokens that are in a URL by mistake.
var logged = map[string]bool{
	"cluster": true, "target": true, "n": true, "wait": true, "wait_for_ready": true, "exclude": true, "explain": true, "ttl": true,
	"owner": true, "identity": true, "older_than": true, "limit": true, "prefix": true, "index": true, "endpoints": true,
	"last": true, "last_event_id": true, "type": true, "since": true, "step": true, "dry_run": true, "strict": true,
	"allow_empty": true, "must_name": true, "max_removed": true, "verbose": true,
}

// Path returns the path and the query of a request without what may be a secret: "…" replaces the values
// of parameters that are not known to be harmless, and the rest of the ID of a lease, which permits to
// end the lease.
func Path(u *url.URL) string {
	var b strings.Builder
	b.WriteString(withoutID(u.EscapedPath()))
	separator := byte('?')
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		b.WriteByte(separator)
		separator = '&'
		name, _, assigned := strings.Cut(pair, "=")
		switch {
		case logged[name]:
			b.WriteString(pair)
		case assigned:
			b.WriteString(name + "=…")
		default:
			b.WriteString("…")
		}
		if b.Len() > maxPath {
			break
		}
	}
	path := b.String()
	if len(path) > maxPath {
		return strings.ToValidUTF8(path[:maxPath], "") + "…"
	}
	return path
}

// withoutID returns a path without the ID of a lease.
func withoutID(path string) string {
	const leases = "/v1/leases/"
	rest, ok := strings.CutPrefix(path, leases)
	if !ok || rest == "done" {
		return path
	}
	id, action, found := strings.Cut(rest, "/")
	if len(id) > leaseBytes {
		id = id[:leaseBytes] + "…"
	}
	if found {
		return leases + id + "/" + action
	}
	return leases + id
}
