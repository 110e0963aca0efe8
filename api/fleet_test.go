package api_test

import (
	"net/http"
	"testing"
)

// TestFleetWithoutStore: a daemon that shares no store has no fleet.
func TestFleetWithoutStore(t *testing.T) {
	d := start(t, nil)
	body := d.must(http.StatusOK, "GET", "/v1/fleet", "").Body.String()
	if want := `{"shared":false,"joined":false,"replicas":[],"limits":[],"disagreements":[]}`; body != want && body != want+"\n" {
		t.Errorf("%s", body)
	}
	d.must(http.StatusBadRequest, "GET", "/v1/fleet?cluster=a", "")
}
