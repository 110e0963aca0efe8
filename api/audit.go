package api

import (
	"net/http"
	"time"

	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/audit"
)

// record writes a request to the audit log if it changes something, or was meant to.
func (e *endpoint) record(w *recorder, r *http.Request, start time.Time) {
	if e.router.audit == nil || e.permission.role&(access.Push|access.Admin) == 0 {
		return
	}
	record := &audit.Record{
		Time: start.UTC(), Address: addressOf(r), Role: e.permission.role.String(),
		Method: r.Method, Path: r.URL.RequestURI(), Status: w.status, Code: string(w.code),
	}
	if w.caller != nil {
		record.Caller = w.caller.Name
	}
	if w.changes != nil {
		record.Changes = w.changes
	}
	e.router.audit.Write(record)
}
