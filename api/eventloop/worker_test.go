package eventloop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
)

// seen is what a handler sees of a request.
type seen struct {
	Route, Method, Target, Path, Query, Host string
	Header                                   http.Header
	Length                                   int64
	Body, ID, Name, Remote                   string
	Close, ForceQuery                        bool
}

func see(route string, r *http.Request) seen {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = fmt.Appendf(body, "(%v)", err)
	}
	return seen{
		Route: route, Method: r.Method, Target: r.RequestURI, Path: r.URL.Path, Query: r.URL.RawQuery, Host: r.Host, Header: maps.Clone(r.Header),
		Length: r.ContentLength, Body: string(body), ID: chi.URLParam(r, "id"), Name: chi.URLParam(r, "name"), Remote: r.RemoteAddr, Close: r.Close, ForceQuery: r.URL.ForceQuery,
	}
}

// watcher is a worker whose handlers record the requests.
func watcher() (*worker, *[]seen) {
	var all []seen
	w := newWorker(Routes{
		Route: func(route string) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				all = append(all, see(route, r))
				w.Header().Set("Content-Length", "0")
				w.WriteHeader(http.StatusOK)
			})
		},
		Leaving: func() bool { return false },
	})
	return w, &all
}

// router serves the same routes with chi.
func router(all *[]seen) http.Handler {
	mux := chi.NewRouter()
	for _, route := range routePatterns {
		method, pattern, _ := strings.Cut(route, " ")
		mux.Method(method, pattern, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			*all = append(*all, see(route, r))
		}))
	}
	return mux
}

// check serves requests with a worker. Those that it serves must be the ones that net/http would
// read from the same bytes.
func check(t *testing.T, b []byte) {
	t.Helper()
	w, got := watcher()
	p := newPeer(w.context(t.Context()), "192.0.2.1:1")
	var want []seen
	mux := router(&want)
	for len(b) > 0 {
		used, v := w.serve(&p, b, time.Now())
		if v == foreign || v == incomplete {
			if used != 0 {
				t.Fatalf("%d bytes were used of a request that was not served", used)
			}
			break
		}
		if used == 0 {
			t.Fatalf("no progress, verdict %d: %.200q", v, b)
		}
		in := bytes.NewReader(b)
		buffered := bufio.NewReaderSize(in, maxHead*2)
		r, err := http.ReadRequest(buffered)
		if err != nil {
			t.Fatalf("net/http rejects %.200q: %v", b[:used], err)
		}
		r.RemoteAddr = "192.0.2.1:1"
		before := len(want)
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if len(want) != before+1 {
			t.Fatalf("chi has no route for %.200q", b[:used])
		}
		if rest := in.Len() + buffered.Buffered(); len(b)-rest != used {
			t.Fatalf("the request ends at %d, for net/http at %d: %.200q", used, len(b)-rest, b)
		}
		if len(*got) != len(want) || !reflect.DeepEqual((*got)[before], want[before]) {
			t.Fatalf("%.200q\ngot  %+v\nwant %+v", b[:used], (*got)[before:], want[before])
		}
		if (v == last) != r.Close {
			t.Fatalf("%.200q: verdict %d, but close is %v", b[:used], v, r.Close)
		}
		b = b[used:]
	}
}

// shapes are requests that a loop serves, and ones that it must not serve.
var shapes = []struct {
	in     string
	served int
}{
	{"GET /pick?cluster=a HTTP/1.1\r\nHost: x\r\n\r\n", 1},
	{"GET /v1/pick?cluster=a&n=3 HTTP/1.1\r\nHost: [::1]:8080\r\nUser-Agent: a\r\nAccept: */*\r\naccept: text/plain\r\n\r\n", 1},
	{"GET /pick? HTTP/1.1\r\nhost:x\r\nX-Empty:\r\nConnection: Keep-Alive\r\n\r\n", 1},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\nGET /pick?b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 2},
	{"POST /pick?cluster=a HTTP/1.1\r\nHost: x\r\n\r\n", 1},
	{"POST /v1/pick?cluster=a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Bearer \t a\r\nAuthorization: b\r\n\r\n", 1},
	{"POST /v1/leases/AB-_9/done HTTP/1.1\r\nHost: x\r\n\r\n", 1},
	{"POST /v1/leases/A/done?x=%41 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{\"a\"}GET /pick HTTP/1.1\r\nHost: y\r\nConnection: close\r\n\r\nGET", 2},
	{"POST /v1/leases/done/done HTTP/1.1\r\nHost: x\r\n\r\n", 1},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\n" + strings.Repeat("x", 4096), 1},
	{"GET /v1/clusters/watch?prefix=a HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1\r\n\r\nGET /v1/events/watch HTTP/1.1\r\nHost: x\r\n\r\n", 2},
	{"GET /v1/daemon/watch HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nCache-Control: no-cache\r\n\r\n", 1},
	{"GET /v1/clusters/xds.a_b-c~1:2/watch?endpoints=false HTTP/1.1\r\nHost: x\r\n\r\n", 1},
	{"GET /v1/clusters/watch/watch HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/clusters/../watch HTTP/1.1\r\nHost: x\r\n\r\n", 2},
	// Other requests.
	{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /pick/ HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET //pick HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"HEAD /pick HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"get /pick HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"POST /v1/leases/done HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"POST /v1/leases//done HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"POST /v1/leases/a/b/done HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"POST /v1/leases/a%2f/done HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /v1/clusters//watch HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /v1/clusters/a%2fb/watch HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /v1/clusters/a/b/watch HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /v1/clusters/a HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"POST /v1/clusters/a/watch HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"POST /v1/events/watch HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"HEAD /v1/events/watch HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET http://x/pick HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0},
	{"\r\nGET /pick HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	// Unusual lines.
	{"GET /pick HTTP/1.0\r\nHost: x\r\n\r\n", 0},
	{"GET /pick HTTP/1.10\r\nHost: x\r\n\r\n", 0},
	{"GET /pick  HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /pick HTTP/1.1 \r\nHost: x\r\n\r\n", 0},
	{"GET /pick\tHTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /pick#a HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /pi\x00ck HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /pick?\xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\nHost: x\n\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\n\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\rHost: x\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\r\n\r\n", 0},
	// Unusual headers.
	{"GET /pick HTTP/1.1\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost:\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x y\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\n a: b\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost : x\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\n: c\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA_b: c\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA: \x7f\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA: a\rb\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, close\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", maxHeaders) + "\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("b", maxHead) + "\r\n\r\n", 0},
	// Lengths.
	{"GET /pick HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", 0},
	{"POST /pick HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 4097\r\n\r\n" + strings.Repeat("x", 4097), 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 0x1\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 01\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length : 1\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\na", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\na\r\n0\r\n\r\n", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 0},
	{"POST /v1/leases/A/done HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 0},
	{"GET /pick HTTP/1.1\r\nHost: x\r\nTrailer: a\r\n\r\n", 0},
}

func TestShapes(t *testing.T) {
	for _, s := range shapes {
		check(t, []byte(s.in))
		w, got := watcher()
		p := newPeer(w.context(t.Context()), "")
		rest := []byte(s.in)
		var v verdict
		for len(rest) > 0 && (v == served || v == last) {
			var used int
			used, v = w.serve(&p, rest, time.Now())
			rest = rest[used:]
		}
		if len(*got) != s.served || s.served == 0 && v != foreign {
			t.Errorf("%.100q: %d requests were served, want %d; verdict %d", s.in, len(*got), s.served, v)
		}
	}
}

// However the bytes of a request arrive, it is served once, when all of it is there; or it is handed
// over at once or later.
func TestParts(t *testing.T) {
	for _, s := range shapes {
		whole, got := watcher()
		p := newPeer(whole.context(t.Context()), "")
		_, want := whole.serve(&p, []byte(s.in), time.Now())
		first := min(len(*got), 1)
		for end := 1; end < min(len(s.in), 400); end++ {
			w, got := watcher()
			p := newPeer(w.context(t.Context()), "")
			used, v := w.serve(&p, []byte(s.in[:end]), time.Now())
			switch {
			case v == incomplete && len(*got) == 0:
				if _, v = w.serve(&p, []byte(s.in), time.Now()); v != want || len(*got) != first {
					t.Fatalf("%.200q: verdict %d after %d bytes, want %d", s.in, v, end, want)
				}
			case v == foreign && want == foreign:
			case (v == served || v == last) && used <= end && want == v:
			default:
				t.Fatalf("%.200q: verdict %d after %d bytes, %d used", s.in, v, end, used)
			}
		}
	}
}

// Header lines are parsed once, those with credentials once for each connection.
func TestSharedFields(t *testing.T) {
	w, _ := watcher()
	first, second := newPeer(t.Context(), ""), newPeer(t.Context(), "")
	for _, shared := range []bool{true, false} {
		lines := []byte("Host: x\r\n")
		if !shared {
			lines = append(lines, "authorization: Bearer a\r\n"...)
		}
		f := w.fieldsOf(&first, lines)
		if w.fieldsOf(&first, lines) != f {
			t.Error("one connection has two copies")
		}
		if got := w.fieldsOf(&second, lines) == f; got != shared {
			t.Errorf("%q: shared %t", lines, got)
		}
	}
}

func FuzzRequests(f *testing.F) {
	for _, s := range shapes {
		f.Add([]byte(s.in))
	}
	f.Fuzz(func(t *testing.T, b []byte) { check(t, b) })
}

func dialTCP(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	noError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
