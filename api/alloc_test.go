//go:build !race

package api_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A pick's answer allocates what chi's routing costs and the Content-Length,
// however many picks are in it.
func TestAllocPick(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080", "10.0.0.8:8080")
	d.must(http.StatusOK, "POST", "/v1/snapshot", shop)
	for _, target := range []string{"/pick?cluster=orders", "/pick?target=shop&path=/shop.Cart/Add&header.tenant=a&n=100", "/pick?cluster=orders&n=100&wait=5s&explain=0&exclude=10.0.0.8:8080"} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		w := &sink{header: http.Header{}}
		got := testing.AllocsPerRun(200, func() {
			clear(w.header)
			d.handler.ServeHTTP(w, r)
		})
		if w.status != 200 || got > 6 {
			t.Errorf("%s: %d, %.0f allocations", target, w.status, got)
		}
	}
}
