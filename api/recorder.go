package api

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/api/accesslog"
	"github.com/lbd-dev/lbd/api/eventloop"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/audit"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/quota"
)

// recorder records the status of a response; 0 until the header is written.
type recorder struct {
	http.ResponseWriter
	status  int
	bytes   int64 // of the body
	caller  *access.Caller
	policy  listen.Policy
	account *quota.Account // nil without quotas
	// acquired is what the request holds of the account's resources, by resource.
	acquired [quota.Resources]int64
	// reserved is what it holds of the memory of all requests, in bytes.
	reserved int64
	router   *router
	turn     *overload.Turn // nil without
	slot     chan struct{}  // the request has one of these slots of the router; nil without
	// renewal is true for a request that has only renewed endpoints: the audit log does not have it.
	renewal bool
	// expired, changes and code are for the audit log: the name of an identity that has expired,
	// what the request changed, and why it was rejected.
	expired string
	changes any
	code    fault.Code
	// loop is the ResponseWriter if the handler must not wait; nil if it may.
	loop NonBlocking
	// stream goes on with the response after the handler; nil for none.
	stream lasting
}

// lasting is a response that lasts longer than its handler.
type lasting interface {
	// Last makes the response call done at its end, which ends the request of caller.
	Last(caller *access.Caller, done func())
}

// NonBlocking is the ResponseWriter of a server that answers many callers in one goroutine. A handler
// that would have to wait does not answer, but hands the request over, to be handled by a server
// with a goroutine for each request. The request is then counted there, and only there.
type NonBlocking interface {
	http.ResponseWriter
	// HandOver says that the request is handed over. Nothing has been written.
	HandOver()
	// WriteResponse writes the status, the headers, Content-Length and the body.
	WriteResponse(status int, body []byte)
	// WriteStream writes the status 200 and the headers. The stream goes on with the response after
	// the handler has returned.
	WriteStream(s eventloop.Stream)
}

// errHandOver is the error of a handler that would have to wait.
var errHandOver = errors.New("the request is handed over")

var recorders = sync.Pool{New: func() any { return new(recorder) }}

// WriteHeader records the status, unless it is informational.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap returns the writer of the server, for [http.ResponseController].
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

const (
	// longWait is the maximum wait that the WriteTimeout of the server has to allow.
	longWait = 10 * time.Second
	// ResponseTime is the time in which a client has to read the response after a longer
	// wait.
	ResponseTime = 30 * time.Second
)

// allowWait moves the deadline of the server's WriteTimeout to [ResponseTime] after wait. It
// ignores writers without deadlines.
func allowWait(w *recorder, wait time.Duration) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + ResponseTime))
}

// record writes a request to the audit log if it changes something, or was meant to.
func (e *route) record(w *recorder, r *http.Request, start time.Time) {
	if e.router.audit == nil || w.renewal || (e.permission.role|e.permission.wider)&(access.Push|access.Admin) == 0 {
		return
	}
	record := &audit.Record{
		Time: start.UTC(), Expired: w.expired, Address: addressOf(r), Role: e.permission.granted(w).String(),
		Method: r.Method, Path: r.URL.RequestURI(), Status: w.status, Code: string(w.code), Changes: w.changes,
	}
	if w.caller != nil {
		record.Caller = w.caller.Name
	}
	if uid, pid, ok := listen.ProcessOf(r); ok {
		record.UID, record.PID = &uid, pid
	}
	e.router.audit.Write(record)
}

// accessEntry returns the entry of a request in the access log, without the response; nil without an
// access log.
func (e *route) accessEntry(w *recorder, r *http.Request, start time.Time) *accesslog.Entry {
	if e.router.access == nil {
		return nil
	}
	entry := &accesslog.Entry{
		Time: start.UTC(), Address: addressOf(r), Listener: listen.NameOf(r), Method: fault.Clip(r.Method), Path: accesslog.Path(r.URL),
	}
	if w.caller != nil {
		entry.Caller = w.caller.Name
	}
	return entry
}

// done counts and logs a request whose response has ended, and releases what it has acquired. entry is
// that of the access log.
func (e *route) done(w *recorder, entry *accesslog.Entry, start time.Time) {
	took := time.Since(start)
	e.series.observe(w.status, took)
	if entry != nil {
		entry.Status, entry.Code, entry.Bytes, entry.Duration = w.status, string(w.code), w.bytes, took.Seconds()
		if entry.Method == http.MethodHead {
			entry.Bytes = 0 // the server omits the body
		}
		e.router.access.Write(entry)
	}
	w.free()
}

// free releases what the request has acquired, and w.
func (w *recorder) free() {
	w.finish()
	*w = recorder{}
	recorders.Put(w)
}
