package eventloop

import (
	"bytes"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Responses have the bytes of net/http, whatever came before.
func TestResponseIsThatOfHTTP(t *testing.T) {
	headers := []map[string][]string{
		{"Content-Type": {"a"}},
		{"Content-Type": {"b"}},
		{"Content-Type": {"a"}, "Location": {"/x"}},
		{"Content-Type": {"a"}, "Location": {"/y"}},
		{"Content-Type": {"a"}, "Location": {"/y"}, "X-B": {"1", "2"}, "Age": {"3"}},
		{"Content-Type": {"a"}, "Location": {"/x", "/y"}},
		{"Content-Type": {"a"}, "X-Value": {" a\r\nb "}, "Retry-After": {"1"}},
		{"Content-Type": {"a"}, "Connection": {"close"}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.URL.Query().Get("i"))
		maps.Copy(w.Header(), headers[i])
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(200 + i%3)
		_, _ = w.Write([]byte("ok"))
	}))
	defer server.Close()
	want := make([]string, len(headers))
	dates := regexp.MustCompile(`Date: [^\r]*`)
	for i := range headers {
		raw := &bytes.Buffer{}
		conn := dialTCP(t, server.Listener.Addr().String())
		if _, err := conn.Write([]byte("GET /?i=" + strconv.Itoa(i) + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := raw.ReadFrom(conn); err != nil {
			t.Fatal(err)
		}
		want[i] = dates.ReplaceAllString(raw.String(), "Date")
	}
	w := &response{header: make(http.Header), now: time.Now()}
	for n := range 300 {
		i := (n*n + n/7) % len(headers)
		w.out = w.out[:0]
		w.reset(true)
		maps.Copy(w.header, headers[i])
		if n%5 > 0 {
			w.WriteResponse(200+i%3, []byte("ok"))
		} else {
			w.header.Set("Content-Length", "2")
			w.WriteHeader(200 + i%3)
			_, _ = w.Write([]byte("ok"))
		}
		if got := dates.ReplaceAllString(string(w.out), "Date"); got != want[i] || !w.closes {
			t.Fatalf("headers %d, closes %t\ngot  %q\nwant %q", i, w.closes, got, want[i])
		}
	}
	// Without Content-Length, the end of the connection is that of the body.
	w.out = w.out[:0]
	w.reset(false)
	_, _ = w.Write([]byte("ok"))
	if !w.closes || !strings.Contains(string(w.out), "\r\nConnection: close\r\n\r\nok") {
		t.Errorf("%q", w.out)
	}
}
