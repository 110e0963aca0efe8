package eventloop

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// response is the http.ResponseWriter of a loop. It appends what net/http would write to out.
type response struct {
	out    []byte
	header http.Header
	keys   []string // buffer
	// written says that the status line and the headers are in out.
	written bool
	// handedOver says that net/http must serve the request.
	handedOver bool
	// closes says that the response is the last one of its connection; asked says that the
	// request asks for that.
	closes, asked bool
	date          []byte
	dated         int64 // the second of date
	now           time.Time
}

// reset prepares the next response.
func (w *response) reset(asked bool) {
	clear(w.header)
	w.written, w.handedOver, w.closes, w.asked = false, false, false, asked
}

// Header returns the headers.
func (w *response) Header() http.Header { return w.header }

// HandOver says that net/http must serve the request.
func (w *response) HandOver() { w.handedOver = true }

// Write appends to the body.
func (w *response) Write(b []byte) (int, error) {
	if !w.written {
		w.WriteHeader(http.StatusOK)
	}
	w.out = append(w.out, b...)
	return len(b), nil
}

// WriteHeader appends the status line and the headers: those of the handler sorted, then those that
// net/http adds.
func (w *response) WriteHeader(status int) {
	if w.written || status < http.StatusOK {
		return
	}
	w.written = true
	b := append(w.out, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	if text := http.StatusText(status); text != "" {
		b = append(b, text...)
	} else {
		b = append(b, "status code "...)
		b = strconv.AppendInt(b, int64(status), 10)
	}
	b = append(b, "\r\n"...)
	w.keys = w.keys[:0]
	sized := false
	for key := range w.header {
		w.keys = append(w.keys, key)
		sized = sized || key == "Content-Length"
	}
	slices.Sort(w.keys)
	for _, key := range w.keys {
		for _, value := range w.header[key] {
			b = append(b, key...)
			b = append(b, ": "...)
			b = append(b, clean(value)...)
			b = append(b, "\r\n"...)
		}
	}
	own := w.header["Connection"]
	w.closes = w.asked || !sized || len(own) > 0 && own[0] == "close"
	b = append(b, "Date: "...)
	b = w.appendDate(b)
	if w.closes && len(own) == 0 {
		b = append(b, "\r\nConnection: close"...)
	}
	w.out = append(b, "\r\n\r\n"...)
}

// clean returns a value as net/http writes it.
func clean(s string) string {
	if strings.ContainsAny(s, "\r\n") {
		s = strings.NewReplacer("\n", " ", "\r", " ").Replace(s)
	}
	return strings.Trim(s, " \t\r\n")
}

func (w *response) appendDate(b []byte) []byte {
	if second := w.now.Unix(); second != w.dated {
		w.dated = second
		w.date = w.now.UTC().AppendFormat(w.date[:0], http.TimeFormat)
	}
	return append(b, w.date...)
}
