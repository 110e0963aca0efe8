package api

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts requests.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) *metrics {
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
