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
	// stream goes on with the response; nil for none.
	stream Stream
	// closes says that the response is the last one of its connection; asked says that the
	// request asks for that.
	closes, asked bool
	now           time.Time
	date          []byte
	dated         int64   // the second of date
	heads         [4]head // of the last responses
	oldest        int
}

// head is the head of a response, which most responses have in common, apart from Content-Length,
// Location and Date.
type head struct {
	status  int
	header  []header
	located bool // there is a Location
	// before ends with Content-Length, between with Location, and after with Date.
	before, between, after []byte
}

type header struct {
	key    string
	values []string
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
	if _, sized := w.header["Content-Length"]; !sized {
		w.asked = true // the end of the connection is that of the body
	}
	w.begin(status)
}

// WriteResponse appends a response with a body. Content-Length is where net/http has it.
func (w *response) WriteResponse(status int, body []byte) {
	if w.written {
		return
	}
	h := w.head(status)
	b := append(w.out, h.before...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, h.between...)
	if h.located {
		b = append(b, clean(w.header["Location"][0])...)
	}
	w.out = append(b, h.after...)
	w.finish()
	w.out = append(w.out, body...)
}

// WriteStream writes the headers of a response that s goes on with.
func (w *response) WriteStream(s Stream) {
	w.stream = s
	w.begin(http.StatusOK)
}

// begin appends what comes before the body.
func (w *response) begin(status int) {
	w.out = w.appendHeaders(w.appendStatus(w.out, status), "", "")
	w.out = append(w.out, "Date: "...)
	w.finish()
}

// head returns the head of a response.
func (w *response) head(status int) *head {
	for i := range w.heads {
		if w.heads[i].is(status, w.header) {
			return &w.heads[i]
		}
	}
	h := &w.heads[w.oldest]
	w.oldest = (w.oldest + 1) % len(w.heads)
	*h = head{status: status, located: len(w.header["Location"]) == 1}
	for key, values := range w.header {
		if h.located && key == "Location" {
			continue
		}
		h.header = append(h.header, header{key, slices.Clone(values)})
	}
	h.before = append(w.appendHeaders(w.appendStatus(nil, status), "", "Content-Length"), "Content-Length: "...)
	next := "Content-Length"
	h.between = []byte("\r\n")
	if h.located {
		h.between = append(w.appendHeaders(h.between, next, "Location"), "Location: "...)
		next = "Location"
		h.after = []byte("\r\n")
	}
	h.after = append(w.appendHeaders(h.after, next, ""), "Date: "...)
	return h
}

// is reports whether a response has the head.
func (h *head) is(status int, all http.Header) bool {
	n := len(h.header)
	if h.located {
		n++
	}
	if h.status != status || n != len(all) || h.located && len(all["Location"]) != 1 {
		return false
	}
	for i := range h.header {
		if !slices.Equal(h.header[i].values, all[h.header[i].key]) {
			return false
		}
	}
	return true
}

// finish appends the date and the rest of the headers.
func (w *response) finish() {
	w.written = true
	own := w.header["Connection"]
	w.closes = w.asked || len(own) > 0 && own[0] == "close"
	w.appendDate()
	if w.closes && len(own) == 0 {
		w.out = append(w.out, "\r\nConnection: close"...)
	}
	if w.stream != nil {
		w.out = append(w.out, "\r\nTransfer-Encoding: chunked"...)
	}
	w.out = append(w.out, "\r\n\r\n"...)
}

func (w *response) appendStatus(b []byte, status int) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	if text := http.StatusText(status); text != "" {
		b = append(append(b, ' '), text...)
	} else {
		b = strconv.AppendInt(append(b, " status code "...), int64(status), 10)
	}
	return append(b, "\r\n"...)
}

// appendHeaders appends the headers whose names sort after one and before another one; "" is no bound.
func (w *response) appendHeaders(b []byte, after, before string) []byte {
	w.keys = w.keys[:0]
	for key := range w.header {
		if key > after && (before == "" || key < before) {
			w.keys = append(w.keys, key)
		}
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
	return b
}

// clean returns a value as net/http writes it.
func clean(s string) string {
	if strings.IndexByte(s, '\r') >= 0 || strings.IndexByte(s, '\n') >= 0 {
		s = strings.NewReplacer("\n", " ", "\r", " ").Replace(s)
	}
	return strings.Trim(s, " \t")
}

func (w *response) appendDate() {
	if second := w.now.Unix(); second != w.dated {
		w.dated = second
		w.date = w.now.UTC().AppendFormat(w.date[:0], http.TimeFormat)
	}
	w.out = append(w.out, w.date...)
}
