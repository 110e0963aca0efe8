package api

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lbd-dev/lbd/service"
)

// metrics count requests.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry *prometheus.Registry) *metrics {
	labels := []string{"route", "method", "code"}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lbd_http_requests_total",
			Help: "Which requests come in, and how are they answered? By route pattern; code 499 is a caller that was gone.",
		}, labels),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lbd_http_request_duration_seconds",
			Help: "How long do answers take, by route pattern? Long polls count with their wait, streams when they end.",
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

// series are the metrics of one route and method. Those of a status begin with
// the first answer that has it.
type series struct {
	metrics       *metrics
	route, method string
	byStatus      [500]atomic.Pointer[statusSeries] // 100 to 599
}

type statusSeries struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

// observe counts one answer.
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

// exposition answers Prometheus.
type exposition struct {
	all       http.Handler
	endpoints *service.Service
	logger    *slog.Logger
}

func newExposition(registry *prometheus.Registry, endpoints *service.Service, logger *slog.Logger) *exposition {
	return &exposition{all: expose(registry, logger), endpoints: endpoints, logger: logger}
}

func expose(g prometheus.Gatherer, logger *slog.Logger) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{
		ErrorLog: scrapeLog{logger}, ErrorHandling: promhttp.ContinueOnError, // what is there is better than nothing
	})
}

// scrapeLog logs the errors of promhttp.
type scrapeLog struct{ *slog.Logger }

// Println logs an error. A caller that hangs up during a scrape, which promhttp
// reports for each family that is left, is no error of lbd's.
func (l scrapeLog) Println(v ...any) {
	for _, a := range v {
		err, _ := a.(error)
		if failed, ok := errors.AsType[*net.OpError](err); ok && failed.Op == "write" {
			l.Debug("a scrape ended early", slog.Any("error", err))
			return
		}
	}
	l.Error("metrics were not gathered", slog.String("error", fmt.Sprint(v...)))
}

// get answers with the metrics.
//
//	@Summary	Metrics in Prometheus' text format
//	@ID			getMetrics
//	@Tags		daemon
//	@Produce	plain
//	@Success	200	{string}	string	"metrics"
//	@Router		/metrics [get]
func (e *exposition) get(w http.ResponseWriter, r *http.Request) error {
	e.all.ServeHTTP(w, r)
	return nil
}

// getEndpoints answers with the metrics of each endpoint.
//
//	@Summary		Metrics of each endpoint in Prometheus' text format
//	@Description	For those who scrape it: three series an endpoint, of the first 100,000. lbd_endpoint_series_truncated tells whether any is missing.
//	@ID				getEndpointMetrics
//	@Tags			daemon
//	@Produce		plain
//	@Success		200	{string}	string	"metrics"
//	@Router			/metrics/endpoints [get]
func (e *exposition) getEndpoints(w http.ResponseWriter, r *http.Request) error {
	expose(e.endpoints.EndpointMetrics(r.Context()), e.logger).ServeHTTP(w, r)
	return nil
}
