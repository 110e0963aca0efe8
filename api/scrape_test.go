package api_test

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/api"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/observe"
	"github.com/lbd-dev/lbd/service/quota"
)

// Scrapes of /metrics gather one after the other, and do not delay lists and scrapes of endpoints.
func TestScrapesGatherOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := start(t, nil)
		var running, most atomic.Int64
		d.service.Metrics.MustRegister(observe.Collector(func(chan<- prometheus.Metric) {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			running.Add(-1)
		}))
		begin := time.Now()
		for range 3 {
			go d.must(http.StatusOK, http.MethodGet, "/metrics", "")
		}
		synctest.Wait()
		for _, path := range []string{"/v1/clusters", "/metrics/endpoints"} {
			d.must(http.StatusOK, http.MethodGet, path, "")
			if took := time.Since(begin); took != 0 {
				t.Errorf("%s took %v", path, took)
			}
		}
		time.Sleep(time.Minute)
		if most.Load() != 1 {
			t.Errorf("%d scrapes gather at a time", most.Load())
		}
	})
}

// deadlines counts how often the deadline of a response is set.
type deadlines struct {
	*httptest.ResponseRecorder

	set int
}

func (d *deadlines) SetWriteDeadline(time.Time) error {
	d.set++
	return nil
}

// Each part of a scrape, of which a family has at least one, has its own deadline.
func TestScrapesRenewDeadline(t *testing.T) {
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	start(t, nil).handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	if families := strings.Count(w.Body.String(), "# TYPE "); w.set < families || families == 0 {
		t.Errorf("the deadline is set %d times for %d families", w.set, families)
	}
}

// Metrics that are not yet written count against the bytes of their caller, also if they are compressed. A MiB is free.
func TestScrapesCountBytes(t *testing.T) {
	m := quota.New(quota.Options{Totals: map[quota.Resource]int64{quota.Bytes: 100 << 10}, MaxAccounts: 1})
	d := startLimited(t, nil, api.Limits{Quotas: m}, nil)
	noise := make([]byte, 600<<10)
	for i := range noise {
		noise[i] = byte(rand.N(256))
	}
	size, large := 400<<10, observe.Gauge("large", "A large series.", "text")
	d.service.Metrics.MustRegister(observe.Collector(func(out chan<- prometheus.Metric) { out <- large.Metric(1, hex.EncodeToString(noise[:size])) }))
	d.must(http.StatusOK, http.MethodGet, "/metrics", "")
	size = len(noise)
	for _, encoding := range []string{"identity", "gzip"} {
		p, w := d.refused(fault.RateLimited, http.MethodGet, "/metrics", "", "Accept-Encoding: "+encoding)
		if w.Header().Get("Retry-After") != "" || p.RetryAfterMS != 0 || !strings.HasSuffix(p.Detail, "a retry does not help") {
			t.Errorf("%s: more than the limit by itself: %v %s", encoding, w.Header(), p.Detail)
		}
		if got := w.Header().Get("Content-Encoding"); got != "" {
			t.Errorf("%s: the problem has the Content-Encoding %q", encoding, got)
		}
	}
	if m.Use(quota.Bytes) != 0 {
		t.Error("bytes are in use after all requests have ended")
	}
}
