package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/quota"
	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/resource"
)

const at = "Lbd-Index"

// A push returns its index, which every later response has, and reads and picks can require.
func TestResponsesHaveTheIndex(t *testing.T) {
	d := start(t, nil)
	if got := d.must(200, "GET", "/v1/clusters", "").Header().Get(at); got != "0" {
		t.Errorf("without pushes: %q", got)
	}
	for i, step := range []struct {
		status               int
		method, target, body string
		index                uint64
	}{
		{201, "PUT", orders, assignment("", "10.0.0.7:8080"), 1},
		{200, "PUT", orders, assignment("", "10.0.0.7:8080"), 1},
		{200, "PUT", orders + "?dry_run", assignment("", "10.0.0.8:8080"), 1},
		{200, "POST", "/v1/snapshot", bundle("a", "b"), 2},
		{201, "PUT", "/v1/targets/shop", "", 3},
		{200, "DELETE", "/v1/targets/shop", "", 4},
		{200, "DELETE", "/v1/clusters/a/endpoints", "", 5},
	} {
		w := d.must(step.status, step.method, step.target, step.body)
		if got := decode[api.PushAnswer](t, w.Body.Bytes()).Index; got != step.index || w.Header().Get(at) != fmt.Sprint(step.index) {
			t.Errorf("%d: %s %s: index %d, %s %s", i, step.method, step.target, got, at, w.Header().Get(at))
		}
	}
	for _, tt := range []struct{ method, target string }{
		{"GET", "/pick?cluster=orders"},
		{"POST", "/pick?cluster=orders"},
		{"HEAD", "/v1/clusters"},
		{"GET", "/pick?cluster=absent"},
		{"GET", "/livez"},
		{"GET", "/metrics"},
		{"GET", "/nowhere"},
		{"PATCH", "/pick"},
		{"GET", orders},
		{"GET", "/problems/blocked"},
	} {
		if got := d.do(tt.method, tt.target, "").Header().Get(at); got != "5" {
			t.Errorf("%s %s: %q", tt.method, tt.target, got)
		}
	}
}

// readPath is a path of an operation, whose resource exists.
func readPath(d *daemon, path string) string {
	lease := d.must(http.StatusCreated, "POST", "/pick?cluster=orders", "").Header().Get("Location")
	path = strings.ReplaceAll(path, "/v1/leases/{id}", lease)
	if strings.HasPrefix(path, "/v1/targets/") {
		return strings.ReplaceAll(path, "{name}", "shop")
	}
	path = strings.ReplaceAll(strings.ReplaceAll(path, "{index}", "1"), "{id}", "one")
	if path = strings.ReplaceAll(path, "{name}", "orders"); strings.HasSuffix(path, "/pick") {
		path += "?cluster=orders"
	}
	return path
}

// All reads and picks of the contract can wait for an index.
func TestReadsWaitForAnIndex(t *testing.T) {
	d := startWith(t, "10.0.0.7:8080")
	d.must(http.StatusOK, "PUT", "/v1/clusters/orders/config?dry_run", maxRequests(3))
	d.must(http.StatusCreated, "PUT", "/v1/clusters/orders/config", maxRequests(100))
	d.must(http.StatusCreated, "PUT", "/v1/targets/shop", "")
	d.must(http.StatusCreated, "PUT", "/v1/clusters/orders/overlays/one", `{"kind":"hold_ejections"}`)
	n := 0
	for _, op := range operations(t) {
		reads := op.method == http.MethodGet && strings.HasPrefix(op.path, "/v1/") || strings.HasSuffix(op.path, "/pick")
		if has := op.Parameters.GetByInAndName("query", "min_index") != nil; has != reads {
			t.Errorf("%s %s: min_index %v", op.method, op.path, has)
		}
		if !reads {
			continue
		}
		n++
		path := readPath(d, op.path)
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		with := func(query string) string { return path + separator + query }
		if !op.streams() {
			if w := d.do(op.method, with("min_index=4"), ""); w.Code/100 != 2 {
				t.Errorf("%s %s: %d %s", op.method, with("min_index=4"), w.Code, w.Body)
			}
		}
		for query, detail := range map[string]string{
			"min_index=5":          "this replica serves index 4, not yet 5: set wait= to wait for it",
			"wait=0s&min_index=5":  "this replica serves index 4, not yet 5: set wait= to wait for it",
			"min_index=6&wait=1ms": "this replica serves index 4, not yet 6: min_index was not reached within 1ms",
			"wait=1ms&min_index=" + strconv.FormatInt(1<<62, 10): "this replica serves index 4, not yet 4611686018427387904: min_index was not reached within 1ms",
		} {
			p, w := d.refused(fault.IndexNotReached, op.method, with(query), "")
			if w.Code != http.StatusGatewayTimeout || p.Detail != detail || w.Header().Get(at) != "4" {
				t.Errorf("%s %s: %d %s %s", op.method, with(query), w.Code, w.Header().Get(at), w.Body)
			}
		}
		for _, query := range []string{"min_index=-1", "min_index=x", "min_index=", "min_index", "min_index=9223372036854775808", "min_index=1.0", "min_index=1&min_index=2", "min_index=4&wait=1h"} {
			d.refused(fault.InvalidArgument, op.method, with(query), "")
		}
		if !strings.HasSuffix(op.path, "/pick") && !strings.HasSuffix(op.path, "/overlays/{id}") {
			d.refusedWith("wait is only valid with ", fault.InvalidArgument, op.method, with("wait=1s"), "")
		}
	}
	if n < 18 {
		t.Errorf("%d operations have min_index", n)
	}
}

// A read or a pick that waits is answered when the index is served, and has its effect.
func TestWaitEndsWithTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.Streams: 2, quota.WaitingPicks: 1, quota.Bulk: 2}, MaxAccounts: 1})
		d := startLimited(t, nil, api.Limits{Quotas: m}, nil)
		d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
		began := time.Now()
		type answer struct {
			target, body string
			index        string
			after        time.Duration
		}
		answers := make(chan answer, 10)
		ask := func(target string) {
			go func() {
				w := d.do("GET", target, "")
				answers <- answer{target, w.Body.String(), w.Header().Get(at), time.Since(began)}
			}()
			synctest.Wait()
		}
		ask("/pick?cluster=new&min_index=2&wait=60s")
		ask(newEndpoints + "?min_index=2&wait=5m")
		d.refused(fault.RateLimited, "GET", "/pick?cluster=orders&min_index=2&wait=1s", "")
		ask("/v1/clusters?min_index=3&wait=10s")
		d.refused(fault.RateLimited, "GET", "/v1/clusters?min_index=2&wait=1s", "")
		d.must(200, "GET", "/v1/clusters", "") // waits use nothing that other reads need
		if len(answers) > 0 {
			t.Fatal(<-answers)
		}
		time.Sleep(4 * time.Second)
		d.must(http.StatusCreated, "PUT", newEndpoints, assignment("", "10.0.0.9:8080"))
		for range 2 {
			if a := <-answers; a.index != "2" || a.after != 4*time.Second || !strings.Contains(a.body, "10.0.0.9") {
				t.Errorf("%+v", a)
			}
		}
		if a := <-answers; a.after != 10*time.Second || !strings.Contains(a.body, "serves index 2, not yet 3") {
			t.Errorf("%+v", a)
		}
		synctest.Wait()
		for _, r := range []quota.Resource{quota.Streams, quota.WaitingPicks, quota.Bulk} {
			if m.Use(r) != 0 {
				t.Errorf("%v is in use after all requests have ended", r)
			}
		}
	})
}

// A stream that waits for an index is one stream, before and after it begins.
func TestStreamWaitsForAnIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.Streams: 1, quota.Bulk: 1}, MaxAccounts: 1})
		d := startLimited(t, nil, api.Limits{Quotas: m}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan *httptest.ResponseRecorder)
		go func() {
			r := httptest.NewRequest(http.MethodGet, "/v1/clusters/watch?min_index=1&wait=10s", http.NoBody)
			ended <- d.answer(r.WithContext(ctx))
		}()
		synctest.Wait()
		d.must(http.StatusCreated, "PUT", newEndpoints, assignment("", "10.0.0.9:8080"))
		time.Sleep(time.Minute)
		if m.Use(quota.Streams) != 1 || m.Use(quota.Bulk) != 0 {
			t.Errorf("%v streams, %v bulk requests", m.Use(quota.Streams), m.Use(quota.Bulk))
		}
		cancel()
		if w := <-ended; w.Code != 200 || w.Header().Get(at) != "1" || !strings.Contains(w.Body.String(), `"name":"new"`) {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

const newEndpoints = "/v1/clusters/new/endpoints"

// The wait of a request is one for the index and for what it waits for afterwards.
func TestWaitIsSharedWithTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, func(o *service.Options) {
			o.Connectors = map[resource.ConnectMode]lb.Connector{resource.ConnectNone: nil, resource.ConnectDefault: never{}}
			o.Sources.ConnectMode = resource.ConnectTCP
		})
		d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
		generation := decode[observe.ClusterState](t, d.must(200, "GET", "/v1/clusters/orders", "").Body.Bytes()).Generation
		began, ended := time.Now(), make(chan string, 3)
		for _, tt := range []struct {
			target string
			status int
			after  time.Duration
		}{
			{"/pick?cluster=orders&min_index=2&wait=10s", http.StatusGatewayTimeout, 10 * time.Second},
			{fmt.Sprintf("/v1/clusters/orders?min_index=2&wait=12s&endpoints=false&index=%d", generation), http.StatusOK, 12 * time.Second},
			{"/v1/clusters/orders?min_index=2&wait=12s", http.StatusOK, 4 * time.Second},
		} {
			go func() {
				if w := d.do("GET", tt.target, ""); w.Code != tt.status || time.Since(began) != tt.after || w.Header().Get(at) != "2" {
					t.Errorf("%+v: %d after %v: %s", tt, w.Code, time.Since(began), w.Body)
				}
				ended <- tt.target
			}()
		}
		time.Sleep(4 * time.Second)
		d.must(http.StatusCreated, "PUT", newEndpoints, assignment("", "10.0.0.9:8080"))
		for range 3 {
			<-ended
		}
		// Without wait, only the pick waits: for the default time.
		began = time.Now()
		if p, _ := d.refused(fault.PickTimeout, "GET", "/pick?cluster=orders&min_index=2", ""); time.Since(began) != time.Second {
			t.Errorf("after %v: %s", time.Since(began), p.Detail)
		}
	})
}

// A service that drains ends waits for an index.
func TestDrainEndsTheWaitForAnIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startWith(t, "10.0.0.7:8080")
		ended := make(chan string, 2)
		for _, target := range []string{"/pick?cluster=orders&min_index=2&wait=60s", "/v1/events?min_index=2&wait=60s"} {
			go func() {
				_, w := d.refused(fault.ShuttingDown, "GET", target, "")
				ended <- w.Body.String()
			}()
		}
		synctest.Wait()
		d.service.Drain()
		for range 2 {
			if got := <-ended; !strings.Contains(got, "serves index 1, not yet 2") {
				t.Error(got)
			}
		}
	})
}

// growing is an index that is reached between two calls.
type growing struct {
	realIndex
	calls int
}

type realIndex interface{ api.Index }

func (g *growing) Index() uint64 {
	g.calls++
	return min(uint64(g.calls), 2)
}

// A response to a request that required an index has at least this index, also if it was reached while the request
// was read.
func TestTheHeaderHasTheRequiredIndex(t *testing.T) {
	g := &growing{}
	d := startServing(t, nil, sources.Connections{}, func(o *api.Options) { g.realIndex, o.Index = o.Index, g })
	d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
	for _, path := range []string{"/pick?cluster=orders&min_index=2", "/v1/clusters?min_index=2"} {
		g.calls = 0
		if got := d.must(http.StatusOK, "GET", path, "").Header().Get(at); got != "2" {
			t.Errorf("%s: %q", path, got)
		}
	}
}
