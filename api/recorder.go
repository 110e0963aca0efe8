package api

import (
	"net/http"
	"sync"
	"time"
)

// recorder remembers the status of an answer; zero until it has begun.
type recorder struct {
	http.ResponseWriter
	status int
}

var recorders = sync.Pool{New: func() any { return new(recorder) }}

// WriteHeader passes informational answers through unremembered.
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
	return w.ResponseWriter.Write(b)
}

// Unwrap lets an http.ResponseController reach the server's writer.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// longWait is the longest wait that the WriteTimeout of a server around the
// handler has to leave time for.
const longWait = 10 * time.Second

// liftWriteDeadline keeps the server's WriteTimeout, which begins with the
// request, from cutting off an answer that waits for what may happen. A writer
// without deadlines has none to lift.
func liftWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}
