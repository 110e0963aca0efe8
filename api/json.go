package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

// Header values that responses share. They must not be modified.
var (
	noStore     = []string{"no-store"}
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	textType    = []string{"text/plain; charset=utf-8"}
)

// reply writes v, or returns err.
func reply(w *recorder, v any, err error) error {
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, v)
	return nil
}

// writeJSON writes v in one line, as a response that must not be cached.
func writeJSON(w *recorder, status int, v any) {
	h := w.Header()
	h["Cache-Control"] = noStore
	h["Content-Type"] = jsonType
	writeBody(w, status, encode(v))
}

// encode returns v as one line of JSON, with <, > and & unescaped. v has a type of this
// package or of the service, all of which can be encoded.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// writeBody writes the response. An error means that the caller has disconnected, or does
// not read, and is ignored.
func writeBody(w *recorder, status int, body []byte) {
	w.endTurn()
	if len(body) > maxSmallBody {
		writeLarge(w, status, sources.Parts{body})
		return
	}
	if w.loop != nil {
		w.status, w.bytes = status, int64(len(body))
		w.loop.WriteResponse(status, body)
		return
	}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeParts is writeBody for a response in parts.
func writeParts(w *recorder, status int, body sources.Parts) {
	if body.Len() > maxSmallBody {
		writeLarge(w, status, body)
		return
	}
	writeBody(w, status, body.Bytes())
}

const (
	// maxSmallBody is the maximum size of a response that needs no quota: the buffers of the
	// system hold it.
	maxSmallBody = 64 << 10
	// StallTimeout is the time in which a caller has to read 64 KiB of a large response.
	StallTimeout = 10 * time.Second
)

// writeLarge writes a response that counts against the quota of its caller until it is
// written. A caller that does not read is disconnected.
func writeLarge(w *recorder, status int, body sources.Parts) {
	length := body.Len()
	if e, refused := errors.AsType[*fault.Error](w.answered(int64(length))); refused {
		h := w.Header()
		h.Del("Content-Encoding")
		h.Del("ETag")
		h.Del("Vary")
		w.code = e.Code
		writeProblem(w, problemOf(e))
		return
	}
	w.Header()["Content-Length"] = []string{strconv.Itoa(length)}
	w.WriteHeader(status)
	out := largeWriter{w: w}
	for _, part := range body {
		if _, err := out.Write(part); err != nil {
			panic(http.ErrAbortHandler) // a partial response must not look complete
		}
	}
}

// largeWriter writes a large response. A caller that does not read is disconnected.
type largeWriter struct {
	w       *recorder
	written int // since the deadline was set
}

func (l *largeWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		if l.written%maxSmallBody == 0 { // also for what is buffered at the end
			_ = http.NewResponseController(l.w).SetWriteDeadline(time.Now().Add(StallTimeout)) // a writer without deadlines does not block
		}
		var some int
		some, err = l.w.Write(p[n:min(len(p), n+maxSmallBody-l.written%maxSmallBody)])
		n, l.written = n+some, l.written+some
	}
	return n, err
}

// appendString appends s as a JSON string, as [encode] writes it. It allocates only if a
// character has to be escaped or is not ASCII.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendValue(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendValue appends v in JSON, without a newline.
func appendValue(b []byte, v any) []byte {
	return append(b, bytes.TrimSuffix(encode(v), []byte("\n"))...)
}
