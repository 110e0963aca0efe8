package eventloop

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"
)

// Routes are the handlers that loops call. They are called with an [http.ResponseWriter] that has the
// method HandOver: one that cannot answer without waiting calls it, and writes nothing. One whose
// response is a stream calls the method WriteStream at last. They keep no reference to the request or
// the writer.
type Routes struct {
	// Route returns the handler of a route, such as "POST /pick".
	Route func(route string) http.Handler
	// Leaving reports whether each response is the last one of its connection.
	Leaving func() bool
}

var routePatterns = [routes]string{
	getPick: "GET /pick", getV1Pick: "GET /v1/pick", postPick: "POST /pick", postV1Pick: "POST /v1/pick",
	watchClusters: "GET /v1/clusters/watch", watchEvents: "GET /v1/events/watch", watchDaemon: "GET /v1/daemon/watch",
	endLease: "POST /v1/leases/{id}/done", watchCluster: "GET /v1/clusters/{name}/watch",
}

// The parameters in paths, as in w.params.
const (
	idParam = iota
	nameParam
)

// worker serves requests, one after the other.
type worker struct {
	handlers [routes]http.Handler
	leaving  func() bool
	response response

	// The last header lines and target: most requests have the same ones as one before.
	fields [8]*fields
	oldest int // of fields
	target string

	url    url.URL
	params *chi.Context
	body   body
}

// peer is the caller on one connection.
type peer struct {
	request *http.Request // whose context is that of the connection
	fields  *fields       // of the last request
	scanned int           // the length of an incomplete request in which no head ends
}

// keptBytes is the maximum size of the buffer of responses that is kept.
const keptBytes = 256 << 10

// keptFields is the maximum length of the header lines that an idle connection keeps.
const keptFields = 2 << 10

// rest removes what a connection without a request does not need.
func (p *peer) rest() {
	if p.fields != nil && len(p.fields.lines) > keptFields {
		p.fields = nil
	}
	p.request.RequestURI, p.request.URL, p.request.Header = "", nil, nil
}

func newWorker(r Routes) *worker {
	w := &worker{leaving: r.Leaving, params: chi.NewRouteContext(), response: response{header: make(http.Header)}}
	w.params.URLParams.Add("id", "")
	w.params.URLParams.Add("name", "")
	for i, pattern := range routePatterns {
		w.handlers[i] = r.Route(pattern)
	}
	return w
}

// context returns the context of requests of a listener or a connection.
func (w *worker) context(parent context.Context) context.Context {
	return context.WithValue(parent, chi.RouteCtxKey, w.params)
}

// newPeer returns a peer whose requests have a context and an address.
func newPeer(ctx context.Context, address string) peer {
	r := &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: address}
	return peer{request: r.WithContext(ctx)}
}

// maxBlank is how many bytes of line ends are ignored after a POST, as by net/http: some callers send
// them after a body.
const maxBlank = 4

// serve serves the first request of b. used is how many bytes of b are not needed any more. After
// an incomplete request, the next b is the rest of it with more bytes.
func (w *worker) serve(p *peer, b []byte, now time.Time) (used int, v verdict) {
	blank := 0
	if p.request.Method == http.MethodPost {
		for blank < min(len(b), maxBlank) && (b[blank] == '\r' || b[blank] == '\n') {
			blank++
		}
		p.request.Method = "" // not again
	}
	used, v = w.serveRequest(p, b[blank:], now)
	return blank + used, v
}

// serveRequest is serve without line ends before the request. used is the length of the request, if it was answered.
func (w *worker) serveRequest(p *peer, b []byte, now time.Time) (used int, v verdict) {
	from := max(0, p.scanned-3)
	p.scanned = 0
	end := bytes.Index(b[from:], []byte("\r\n\r\n"))
	if end < 0 {
		if len(b) >= maxHead || !plausible(b) {
			return 0, foreign
		}
		p.scanned = len(b)
		return 0, incomplete
	}
	if end += from; end+4 > maxHead {
		return 0, foreign
	}
	lineEnd := bytes.IndexByte(b, '\r')
	if b[lineEnd+1] != '\n' {
		return 0, foreign
	}
	l, ok := parseLine(b[:lineEnd])
	if !ok {
		return 0, foreign
	}
	f := w.fieldsOf(p, b[lineEnd+2:end+2])
	if f.foreign || f.length > 0 && l.route != endLease {
		return 0, foreign
	}
	used = end + 4 + f.length
	if used > len(b) {
		if used > maxHead {
			return 0, foreign
		}
		return 0, incomplete
	}
	if v = w.handle(p, &l, f, b[end+4:used], now); v == foreign {
		return 0, v
	}
	return used, v
}

// takeResponses returns the responses, which are valid until the next request.
func (w *worker) takeResponses() []byte {
	out := w.response.out
	w.response.out = out[:0]
	if cap(out) > keptBytes {
		w.response.out = nil
	}
	return out
}

// fieldsOf returns the fields of header lines.
func (w *worker) fieldsOf(p *peer, lines []byte) *fields {
	if p.fields != nil && p.fields.lines == string(lines) {
		return p.fields
	}
	for _, f := range w.fields {
		if f != nil && f.lines == string(lines) {
			p.fields = f
			return f
		}
	}
	p.fields = parseFields(lines)
	if !p.fields.secret && !p.fields.foreign {
		w.fields[w.oldest] = p.fields
		w.oldest = (w.oldest + 1) % len(w.fields)
	}
	return p.fields
}

func (w *worker) handle(p *peer, l *line, f *fields, content []byte, now time.Time) (v verdict) {
	if string(l.target) != w.target {
		w.target = string(l.target)
	}
	r := p.request
	r.Method, r.RequestURI, r.Header, r.Host, r.Close = l.method, w.target, f.header, f.host, f.closes
	w.url = url.URL{Path: w.target[:l.path]}
	if l.path < len(w.target) {
		w.url.RawQuery = w.target[l.path+1:]
		w.url.ForceQuery = w.url.RawQuery == ""
	}
	r.URL, r.Body, r.ContentLength = &w.url, http.NoBody, int64(len(content))
	if len(content) > 0 {
		w.body.rest = content
		r.Body = &w.body
	}
	params := w.params.URLParams.Values
	params[idParam], params[nameParam] = "", ""
	switch l.route {
	case endLease:
		params[idParam] = w.target[len(leasesPath) : len(leasesPath)+len(l.id)]
	case watchCluster:
		params[nameParam] = w.target[len(clustersPath) : len(clustersPath)+len(l.id)]
	default:
	}
	w.response.now = now
	w.response.reset(f.closes)
	begin := len(w.response.out)
	defer func() {
		w.body.rest = nil
		if recover() != nil { // the handler has logged it, or aborts the response
			w.response.out = w.response.out[:begin]
			v = aborted
			if s := w.response.stream; s != nil {
				w.response.stream = nil
				s.End()
			}
		}
	}()
	if w.leaving() {
		w.response.header["Connection"] = closing
	}
	w.handlers[l.route].ServeHTTP(&w.response, r)
	switch {
	case w.response.handedOver:
		return foreign
	case w.response.stream != nil:
		return streamed
	}
	if !w.response.written {
		w.response.WriteHeader(http.StatusOK)
	}
	if w.response.closes {
		return last
	}
	return served
}

var closing = []string{"close"}

// body is the body of a request.
type body struct{ rest []byte }

// Read reads the body.
func (b *body) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Bytes returns the rest of the body, which is complete. It is valid until the handler returns.
func (b *body) Bytes() []byte { return b.rest }

// Close does nothing.
func (*body) Close() error { return nil }
