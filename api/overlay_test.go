package api_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
)

// TestPutAnOverlayThatEnds: a PUT that waits for a drain has put the overlay, also if that ends meanwhile.
func TestPutAnOverlayThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080", "10.0.0.8:8080")
		for range 2 {
			d.must(http.StatusCreated, "POST", "/pick?cluster=orders&ttl=5m", "")
		}
		began := time.Now()
		w := d.must(http.StatusCreated, "PUT", "/v1/clusters/orders/overlays/one?wait=1m", `{"kind":"drain","endpoint":"10.0.0.7:8080","expires":"5s"}`)
		answer := decode[api.OverlayAnswer](t, w.Body.Bytes())
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second || answer.Overlay != nil || len(answer.Changes) != 1 {
			t.Errorf("after %v: %s", took, w.Body)
		}
	})
}
