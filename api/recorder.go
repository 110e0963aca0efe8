package api

import (
	"net/http"
	"sync"
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
