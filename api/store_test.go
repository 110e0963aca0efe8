package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/sources"
)

func TestStoreState(t *testing.T) {
	d := start(t, nil)
	d.expect("/v1/store", `{"kind":"file","served":0,"index":0,"last":0,"loaded":true,"unreadable":0}`)
	d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
	d.service.Inbound.StoreLost(http.ErrServerClosed)
	state := decode[sources.StoreState](t, d.must(200, "GET", "/v1/store", "").Body.Bytes())
	if state.Served != 1 || state.Index != 1 || state.FailingSince == nil || state.Error != "" {
		t.Errorf("got %+v", state) // the store itself has no error here
	}
	d.service.Inbound.StoreLost(nil)
	if got := d.must(200, "GET", "/v1/store?min_index=1", "").Body.String(); strings.Contains(got, "failing_since") {
		t.Error(got)
	}
	d.refused(fault.InvalidArgument, "GET", "/v1/store?x", "")
}
