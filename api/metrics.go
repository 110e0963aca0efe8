package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lbd-dev/lbd/service"
	"github.com/lbd-dev/lbd/service/observe"
)

// metrics counts requests.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	labels := []string{"route", "method", "code"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lbd_http_requests_total",
			Help: "HTTP requests, by route pattern; code 499 means that the caller had disconnected.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lbd_http_request_duration_seconds",
			Help: "Time to answer HTTP requests, by route pattern; includes the wait of long polls. Streams count when they end.",
			// A pick takes microseconds, a large push a second, a long poll minutes.
			Buckets: []float64{.00002, .00005, .0001, .0002, .0005, .001, .005, .025, .1, .5, 1, 5, 30, 300},
		}, labels),
	}
	registry.MustRegister(m.requests, m.duration)
	return m
}

func (m *metrics) of(route, method string) *series {
	return &series{metrics: m, route: route, method: method}
}

// series has the metrics of one route and method, created with the first response of each
// status.
type series struct {
	metrics       *metrics
	route, method string
	byStatus      [500]atomic.Pointer[statusSeries] // 100 to 599
}

type statusSeries struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

// observe counts one response.
func (s *series) observe(status int, took time.Duration) {
	slot := &s.byStatus[min(max(status, 100), 599)-100]
	one := slot.Load()
	if one == nil {
		code := strconv.Itoa(status)
		one = &statusSeries{
			requests: s.metrics.requests.WithLabelValues(s.route, s.method, code),
			duration: s.metrics.duration.WithLabelValues(s.route, s.method, code),
		}
		slot.Store(one)
	}
	one.requests.Inc()
	one.duration.Observe(took.Seconds())
}

// exposition serves metrics to Prometheus.
type exposition struct {
	all     http.Handler // for callers without clusters
	service *service.Service
	logger  *slog.Logger
}

func expose(g prometheus.Gatherer, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{logger}, ErrorHandling: promhttp.ContinueOnError, // some metrics are better than none
	})
}

// scrapeLog logs the errors of promhttp.
type scrapeLog struct{ *slog.Logger }

// Println logs an error.
func (l scrapeLog) Println(v ...any) {
	l.Error("cannot gather metrics", slog.String("error", fmt.Sprint(v...)))
}

// buffered keeps a response, whose header is that of the ResponseWriter.
type buffered struct {
	http.ResponseWriter

	status int
	body   bytes.Buffer
}

func (b *buffered) WriteHeader(status int) { b.status = status }

func (b *buffered) Write(p []byte) (int, error) { return b.body.Write(p) }

// scrape writes metrics. Anyone may scrape a listener without identities: one scrape of the same slots
// gathers at a time, and what is not yet written counts against the quota of its caller. There are so
// many clusters. from may wait for trees, so that it has no turn.
func scrape(w *recorder, r *http.Request, slots chan struct{}, clusters int, from func() http.Handler) error {
	if err := w.takeSlot(r.Context(), slots); err != nil {
		return err
	}
	h := from()
	if err := takeTurnOf(w, r, clusters); err != nil {
		return err
	}
	b := &buffered{ResponseWriter: w, status: http.StatusOK}
	h.ServeHTTP(b, r)
	writeBody(w, b.status, b.body.Bytes())
	return nil
}

// @Summary     Get metrics in Prometheus' text format
// @Description A caller with clusters gets the series of these, by the labels cluster and target, and those of the process.
// @Produce     plain
// @Success     200 {string} string "metrics"
// @Router      /metrics [get]
func (e *exposition) getMetrics(w http.ResponseWriter, r *http.Request) error {
	rec := w.(*recorder) //nolint:errcheck // handlers are called with no other
	return scrape(rec, r, rec.router.scrapes, e.service.CountClusters(), func() http.Handler {
		if scope := scopeOf(w); !scope.All() {
			return expose(observe.Within(scope, e.service.Registry()), e.logger)
		}
		return e.all
	})
}

// @Summary     Get metrics of endpoints in Prometheus' text format
// @Description Three series per endpoint, for at most 100,000 endpoints. lbd_endpoint_series_truncated is 1 if endpoints are missing.
// @Produce     plain
// @Success     200 {string} string "metrics"
// @Router      /metrics/endpoints [get]
func (e *exposition) getEndpointMetrics(w http.ResponseWriter, r *http.Request) error {
	rec := w.(*recorder) //nolint:errcheck // handlers are called with no other
	return scrape(rec, r, rec.router.endpointScrapes, e.service.CountClusters(), func() http.Handler {
		return expose(e.service.EndpointMetrics(r.Context(), scopeOf(w)), e.logger)
	})
}
