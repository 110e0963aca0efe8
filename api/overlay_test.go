package api_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
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

// TestEncodedOverlayIDs: a path may have percent-encoded characters, which some clients encode always.
func TestEncodedOverlayIDs(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080", "10.0.0.8:8080")
	d.must(http.StatusCreated, "PUT", "/v1/clusters/a%2Fb/endpoints", assignment("", "10.0.0.7:8080"))
	for _, cluster := range []string{"orders", "a%2Fb"} {
		path := "/v1/clusters/" + cluster + "/overlays/"
		d.must(http.StatusCreated, "PUT", path+"deploy%2D7", `{"kind":"hold_ejections"}`)
		d.must(http.StatusOK, "GET", path+"deploy-7", "")
		d.must(http.StatusOK, "GET", path+"%64eploy-7", "")
		d.must(http.StatusOK, "DELETE", path+"deploy%2D7", "")
		d.refusedWith("is not 1 to 64 letters", fault.InvalidArgument, "PUT", path+"a%2Fb", `{"kind":"hold_ejections"}`)
	}
}
