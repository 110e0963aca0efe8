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

// longWait is the longest wait that the timeouts of a server around the handler
// have to leave time for.
const longWait = 10 * time.Second

// liftDeadlines keeps the server's timeouts from ending an answer that waits
// for what may happen: its ReadTimeout would cancel the request, though all of
// it is read, and its WriteTimeout cut the answer off. A writer without
// deadlines has none to lift.
func liftDeadlines(w http.ResponseWriter) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
}
