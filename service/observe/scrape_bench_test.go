package observe

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lbd-dev/lbd/test/ledgertest"
	"github.com/lbd-dev/lbd/xds/resource"
)

// BenchmarkScrape is what a scrape of 2,000 clusters with picks costs, for each of their series.
func BenchmarkScrape(b *testing.B) {
	s := newState(b)
	for i := range 2000 {
		name := fmt.Sprint("cluster-", i)
		a := ledgertest.Assignment(name, resource.Locality{Zone: "a"}, resource.Locality{Zone: "b"})
		a.Drops = []resource.Drop{{Category: "throttle", PerMillion: 10}}
		apply(b, s, name, ledgertest.Config(name, a))
	}
	m := NewMetrics(prometheus.NewRegistry(), s, NewTimeline(s.ledger, -1))
	h := promhttp.HandlerFor(m, promhttp.HandlerOpts{})
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		n = bytes.Count(w.Body.Bytes(), []byte("\nlbd_"))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/series")
	b.ReportMetric(float64(n), "series")
}
