package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// sink is a ResponseWriter that can be used again.
type sink struct {
	header http.Header
	status int
	bytes  int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { s.bytes += len(b); return len(b), nil }

func BenchmarkPickHandler(b *testing.B) {
	for _, c := range []struct{ name, target, accept string }{
		{"json", "/pick?cluster=orders", ""},
		{"text", "/pick?cluster=orders", "text/plain"},
		{"n=100", "/pick?cluster=orders&n=100", ""},
		{"n=100 text", "/pick?cluster=orders&n=100", "text/plain"},
		{"dropped", "/pick?cluster=shed", ""},
		{"routed", "/pick?target=shop&path=/shop.Cart/Add&header.tenant=alpha", ""},
		{"routed n=100", "/pick?target=shop&path=/shop.Cart/Add&n=100", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := startWith(b, "10.0.0.7:8080", "10.0.0.8:8080")
			d.must(http.StatusCreated, "PUT", "/v1/clusters/shed/endpoints",
				assignment("all, drop_percentage: {numerator: 100}", "10.0.0.7:8080"))
			d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
			r := httptest.NewRequest(http.MethodGet, c.target, nil)
			if c.accept != "" {
				r.Header.Set("Accept", c.accept)
			}
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				d.handler.ServeHTTP(w, r)
			}
		})
	}
}
