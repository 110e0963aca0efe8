package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// startTurns starts a daemon with one turn of bulk work, with two large clusters, orders and other, and
// so many small ones that lists are large.
func startTurns(t *testing.T) (*daemon, *overload.Turns) {
	t.Helper()
	turns := overload.NewTurns(1)
	d := startLimited(t, nil, api.Limits{Turns: turns}, func(o *service.Options) { o.Turns = turns })
	addresses := make([]string, 1000)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.0.%d.%d:80", i/256, i%256)
	}
	large := assignment("", addresses...)
	d.must(http.StatusCreated, "PUT", orders, large)
	d.must(http.StatusCreated, "PUT", strings.Replace(orders, "orders", "other", 1), large)
	names := make([]string, overload.SmallClusters+1)
	for i := range names {
		names[i] = fmt.Sprintf("small-%d", i)
	}
	d.must(http.StatusOK, "POST", "/v1/snapshot", bundle(names...))
	return d, turns
}

// bulkPaths are responses that need a turn.
var bulkPaths = []string{
	"/v1/clusters", "/v1/clusters/orders", "/v1/targets", "/v1/xds", "/v1/leases", orders, "/v1/snapshot", "/metrics",
}

// TestBulkWorkTakesTurns: while bulk work has the turns, other bulk work waits; picks and what is small
// do not.
func TestBulkWorkTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, turns := startTurns(t)
		turn, err := turns.Begin(t.Context(), overload.SourceWork, "")
		servicetest.Must(t, err)
		begin := time.Now()
		var done atomic.Int64
		for _, path := range bulkPaths {
			go func() {
				d.must(http.StatusOK, "GET", path, "")
				done.Add(1)
			}()
		}
		synctest.Wait()
		if n := turns.Stats(overload.ResponseWork).Waiting; n != len(bulkPaths) {
			t.Errorf("%d wait of %d", n, len(bulkPaths))
		}
		for _, path := range []string{
			"/pick?cluster=orders", "/v1/clusters/small-1", "/v1/clusters/orders?endpoints=false", "/v1/clusters/small-1/endpoints", "/v1/daemon",
		} {
			d.must(http.StatusOK, "GET", path, "")
		}
		d.must(http.StatusOK, "PUT", "/v1/clusters/small-1/endpoints", assignment("", "10.0.0.1:80"))
		if n := done.Load(); n > 0 || time.Since(begin) != 0 {
			t.Errorf("%d did not wait; %v passed", n, time.Since(begin))
		}
		turn.End()
		synctest.Wait()
		if s := turns.Stats(overload.ResponseWork); int(done.Load()) != len(bulkPaths) || s.Running != 0 || s.Waiting != 0 {
			t.Errorf("%d of %d have ended: %+v", done.Load(), len(bulkPaths), s)
		}
	})
}

// TestSlowReadersHoldNoTurn: while a caller does not read its response, others get theirs. A response that has begun
// needs no further turn.
func TestSlowReadersHoldNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, turns := startTurns(t)
		for _, path := range append([]string{"/v1/clusters?limit=1", "/v1/leases?limit=1"}, bulkPaths...) {
			w := &slowReader{ResponseRecorder: httptest.NewRecorder()}
			var turn *overload.Turn
			w.first = func([]byte) {
				if n := turns.Stats(overload.ResponseWork).Running; n != 0 {
					t.Errorf("%s: a turn is held while the response is written", path)
					return
				}
				d.must(http.StatusOK, "GET", "/v1/clusters/other", "") // it needs a turn
				turn, _ = turns.Begin(t.Context(), overload.SourceWork, "")
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			if d.handler.ServeHTTP(w, r); w.Code != http.StatusOK || w.first != nil {
				t.Errorf("%s: %d, and nothing was written", path, w.Code)
			}
			turn.End()
		}
	})
}

// TestStressOfTurns: all callers are answered, with one turn for everything.
func TestStressOfTurns(t *testing.T) {
	d, turns := startTurns(t)
	large := d.must(http.StatusOK, "GET", orders, "").Body.String()
	var callers sync.WaitGroup
	for caller := range 4 {
		callers.Go(func() {
			for i := range 4 {
				d.must(http.StatusOK, "GET", bulkPaths[(caller+i)%len(bulkPaths)], "")
				d.must(http.StatusOK, "PUT", orders, large)
				d.must(http.StatusOK, "GET", "/pick?cluster=orders", "")
			}
		})
	}
	callers.Wait()
	for _, work := range overload.Works {
		if s := turns.Stats(work); s.Running != 0 || s.Waiting != 0 {
			t.Errorf("%v: %+v", work, s)
		}
	}
}
