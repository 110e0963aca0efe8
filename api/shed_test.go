package api_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/api/listen"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/access"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/test/servicetest"
)

// shedLevel is a level that tests set.
type shedLevel struct{ atomic.Int32 }

func (l *shedLevel) sheds(at overload.Level) bool { return overload.Level(l.Load()) >= at }

// At overload, the open streams of callers without identity end with a time after which clients
// reconnect, also those whose client does not read, and their long polls; those of identities go on.
func TestOverloadEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token, hash := access.NewToken()
		known, err := access.Parse(fmt.Appendf(nil, "tokens: [{name: web, roles: [read], sha256: %s}]", hash))
		servicetest.Must(t, err)
		begin := time.Now()
		level := new(shedLevel)
		shedding := api.NewShedding(level.sheds, nil)
		d := startLimited(t, &listen.Callers{Identities: func() *access.Identities { return known }}, api.Limits{Shedding: shedding}, nil)
		specs, err := listen.Parse([]string{"127.0.0.1:1,anonymous=all"})
		servicetest.Must(t, err)
		l := &listen.Listener{Spec: specs[0], Policy: specs[0].Policy(true, false)}
		inner := d.handler
		d.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Host = "localhost"
			inner.ServeHTTP(w, withListener(r, l))
		})
		d.service.Metrics.MustRegister(shedding)
		d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
		send := serve(t, d, time.Hour)
		anonymous := answered(t, send(get("/v1/events/watch")))
		send(get("/v1/clusters/orders/watch")) // is not read
		identity := answered(t, send(get("/v1/events/watch", "Authorization: Bearer "+token)))
		generation := decode[observe.ClusterState](t, d.must(200, http.MethodGet, "/v1/clusters/orders", "").Body.Bytes()).Generation
		poll := fmt.Sprintf("/v1/clusters/orders?index=%d&wait=1s", generation)
		polls := []int{http.StatusServiceUnavailable, http.StatusOK}
		for i, headers := range [][]string{nil, {"Authorization: Bearer " + token}} {
			go func() {
				w := d.do("GET", poll, "", headers...)
				if w.Code != polls[i] || i == 0 && (!strings.Contains(w.Body.String(), "overloaded") || len(w.Header().Get("Retry-After")) == 0 || time.Since(begin) != 0) {
					t.Errorf("long poll %d: %d after %v: %s", i, w.Code, time.Since(begin), w.Body)
				}
			}()
		}
		synctest.Wait() // all are open
		if n := shedding.EndStreams(); n != 0 {
			t.Errorf("%d streams ended without overload", n)
		}
		level.Store(int32(overload.ShedStreams))
		if n := shedding.EndStreams(); n != 3 {
			t.Errorf("%d streams ended", n)
		}
		rest, err := io.ReadAll(anonymous.body)
		ms, _ := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(rest), "retry: ")))
		if wait := time.Duration(ms) * time.Millisecond; err != nil || wait < api.ShedRetry || wait >= 2*api.ShedRetry {
			t.Errorf("the end of the stream is %q, %v", rest, err)
		}
		d.refused("overloaded", "GET", "/v1/events/watch", "")
		d.refused("overloaded", "GET", poll, "")
		if n := shedding.EndStreams(); n != 0 {
			t.Errorf("%d streams ended again", n)
		}
		identity.must("heartbeat")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := counted(d, watchers); got != "1" {
			t.Errorf("%s streams are open", got)
		}
		for work, want := range map[string]string{"open_streams": "3", "streams": "2", "memory": "0", "sources": "0", "snapshots": "0", "pushes": "0", "leases": "0"} {
			if got := counted(d, fmt.Sprintf("lbd_shed_total{work=%q}", work)); got != want {
				t.Errorf("%s: %s are counted, not %s", work, got, want)
			}
		}
	})
}

// Work is rejected in an order, and picks without a lease never.
func TestOverloadRejectsWork(t *testing.T) {
	level := new(shedLevel)
	d := startLimited(t, nil, api.Limits{Shedding: api.NewShedding(level.sheds, nil)}, nil)
	d.must(http.StatusCreated, "PUT", orders, assignment("", "10.0.0.7:8080"))
	for at, request := range map[overload.Level][3]string{
		overload.ShedStreams:   {"GET", "/v1/clusters/unknown/watch", "404"},
		overload.ShedSnapshots: {"GET", "/v1/snapshot", "200"},
		overload.ShedPushes:    {"DELETE", "/v1/clusters/unknown/config", "404"},
		overload.ShedLeases:    {"POST", "/pick?cluster=orders", "201"},
	} {
		for l := overload.ShedNothing; l <= overload.ShedLeases; l++ {
			level.Store(int32(l))
			d.must(http.StatusOK, "GET", "/pick?cluster=orders", "")
			if l < at {
				if w := d.do(request[0], request[1], ""); strconv.Itoa(w.Code) != request[2] {
					t.Errorf("%v at level %d: %d %s", request, l, w.Code, w.Body)
				}
				continue
			}
			if _, w := d.refused("overloaded", request[0], request[1], ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
				t.Errorf("%v at level %d: %d, Retry-After %q", request, l, w.Code, w.Header().Get("Retry-After"))
			}
		}
	}
}

// Many streams end in portions.
func TestOverloadEndsStreamsInPortions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		level := new(shedLevel)
		shedding := api.NewShedding(level.sheds, nil)
		d := startLimited(t, nil, api.Limits{Shedding: shedding}, nil)
		const more = 7
		for range api.MaxShedStreams + more {
			go d.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v1/events/watch", nil))
		}
		synctest.Wait()
		level.Store(int32(overload.ShedLeases))
		for _, want := range []int{api.MaxShedStreams, more, 0} {
			if n := shedding.EndStreams(); n != want {
				t.Errorf("%d streams ended; want %d", n, want)
			}
		}
		synctest.Wait()
		if got := counted(d, watchers); got != "0" {
			t.Errorf("%s streams are open", got)
		}
		d.refused("overloaded", "GET", "/v1/events/watch", "")
	})
}

// listenerContext is a context with the listener of a request.
type listenerContext struct {
	context.Context //nolint:containedctx // it is one

	listener context.Context //nolint:containedctx // it is a part of one
}

func (c listenerContext) Value(key any) any {
	if v := c.listener.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// withListener returns a request that came through a listener.
func withListener(r *http.Request, l *listen.Listener) *http.Request {
	return r.WithContext(listenerContext{r.Context(), listen.BaseContext(l)})
}

// Requests reserve the memory that they take, and give it back. They are refused if other requests leave none, and,
// because a retry does not help, without Retry-After if the data does.
func TestRequestsReserveMemory(t *testing.T) {
	list := func(n int) string {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)
		}
		return strings.Join(lines, "\n")
	}
	const limit = 256 << 20
	data, collections := uint64(0), uint64(0)
	memory := overload.NewMemoryBudget(limit, func() (uint64, uint64) {
		collections++
		return data, collections
	}, func() {})
	d := startLimited(t, nil, api.Limits{Turns: overload.NewTurns(1), Shedding: api.NewShedding(new(shedLevel).sheds, memory)}, nil)
	d.must(http.StatusCreated, "PUT", orders, list(5000))
	d.must(http.StatusOK, "PUT", orders, list(5001))
	snapshot := d.must(http.StatusOK, "GET", "/v1/snapshot", "").Body.String()
	for _, request := range [][]string{
		{"GET", "/v1/clusters/orders", ""},
		{"GET", orders, ""},
		{"GET", orders + "?view=effective", ""},
		{"GET", orders, "", "Accept: application/yaml"},
		{"GET", "/v1/snapshot", ""},
		{"GET", "/metrics/endpoints", ""},
		{"GET", "/v1/history/2/diff?resource=ClusterLoadAssignment/orders", ""},
		{"PUT", orders + "?dry_run=true", list(4000)},
		{"POST", "/v1/history/1/restore?dry_run=true&all=true", ""},
		{"PUT", orders, list(5002)},
		{"PUT", "/v1/snapshot", snapshot},
	} {
		for used, after := range map[uint64]string{0: "1", limit: ""} {
			data = used
			others := int64(limit-used) / 10 * 9
			servicetest.Must(t, memory.Reserve(others, 0))
			if w := d.do(request[0], request[1], request[2], request[3:]...); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != after {
				t.Errorf("%.40q without memory: %d %v %.200s", request, w.Code, w.Header(), w.Body)
			}
			data = 0
			memory.Release(others)
		}
		if d.do(request[0], request[1], request[2], request[3:]...).Code != http.StatusOK {
			t.Errorf("%.40q is refused", request)
		}
		if bytes, _, _ := memory.Reserved(); bytes != 0 {
			t.Errorf("%.40q: %d bytes remain reserved", request, bytes)
		}
		d.must(http.StatusOK, "GET", "/pick?cluster=orders", "")
	}
}
