package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lbd-dev/lbd/service/picks"
)

var leaseBodies = sync.Pool{New: func() any { return new([]byte) }}

// writeLease writes what the caller may see of the state of a lease, or returns err.
func writeLease(w *recorder, l picks.LeaseState, err error) error {
	if err != nil {
		return err
	}
	l = l.Within(scopeOf(w))
	body := leaseBodies.Get().(*[]byte) //nolint:errcheck // the pool holds nothing else
	defer leaseBodies.Put(body)
	*body = appendLease((*body)[:0], &l)
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = jsonType
	writeBody(w, http.StatusOK, *body)
	return nil
}

// appendLease appends what encoding/json would write for l, and a newline. It allocates nothing
// unless a text of l has to be escaped.
func appendLease(b []byte, l *picks.LeaseState) []byte {
	b = append(b, `{"id":"`...)
	b, _ = l.ID.AppendText(b) // without an error
	b = append(b, `","cluster":`...)
	b = appendString(b, l.Cluster)
	if l.Leaf != "" {
		b = append(b, `,"leaf":`...)
		b = appendString(b, l.Leaf)
	}
	if l.Target != "" {
		b = append(b, `,"target":`...)
		b = appendString(b, l.Target)
	}
	b = append(b, `,"address":`...)
	b = appendString(b, l.Address)
	b = append(b, `,"priority":`...)
	b = strconv.AppendInt(b, int64(l.Priority), 10)
	if l.Identity != "" {
		b = append(b, `,"identity":`...)
		b = appendString(b, l.Identity)
	}
	if l.Name != "" {
		b = append(b, `,"owner":`...)
		b = appendString(b, l.Name)
	}
	b = append(b, `,"state":`...)
	b = appendString(b, l.State)
	b = append(b, `,"granted_at":`...)
	b = appendTime(b, l.GrantedAt)
	b = append(b, `,"expires_at":`...)
	b = appendTime(b, l.ExpiresAt)
	if l.Outcome != "" {
		b = append(b, `,"outcome":`...)
		b = appendString(b, string(l.Outcome))
	}
	if !l.EndedAt.IsZero() {
		b = append(b, `,"ended_at":`...)
		b = appendTime(b, l.EndedAt)
	}
	return append(b, "}\n"...)
}

// appendTime appends a time of this century in JSON.
func appendTime(b []byte, t time.Time) []byte {
	b = append(b, '"')
	b = t.AppendFormat(b, time.RFC3339Nano)
	return append(b, '"')
}
