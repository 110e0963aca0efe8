package api

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lbd-dev/lbd/service/observe"
)

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
func (h *handlers) scrape(w *recorder, r *http.Request, slots chan struct{}, clusters int, from func() prometheus.Gatherer) error {
	if err := w.takeSlot(r.Context(), slots); err != nil {
		return err
	}
	metrics := promhttp.HandlerFor(from(), promhttp.HandlerOpts{
		ErrorLog: scrapeLog{h.Logger}, ErrorHandling: promhttp.ContinueOnError, // some metrics are better than none
	})
	if err := takeTurnOf(w, r, clusters); err != nil {
		return err
	}
	b := &buffered{ResponseWriter: w, status: http.StatusOK}
	metrics.ServeHTTP(b, r)
	writeBody(w, b.status, b.body.Bytes())
	return nil
}

// @Summary     Get metrics in Prometheus' text format
// @Description A caller with clusters gets the series of these, by the labels cluster and target, and those of the process.
// @Produce     plain
// @Success     200 {string} string "metrics"
// @Router      /metrics [get]
func (h *handlers) getMetrics(w *recorder, r *http.Request) error {
	return h.scrape(w, r, w.router.scrapes, h.State.CountClusters(), func() prometheus.Gatherer { return observe.Within(scopeOf(w), h.Metrics) })
}

// @Summary     Get metrics of endpoints in Prometheus' text format
// @Description Three series per endpoint, for at most 100,000 endpoints. lbd_endpoint_series_truncated is 1 if endpoints are missing.
// @Produce     plain
// @Success     200 {string} string "metrics"
// @Router      /metrics/endpoints [get]
func (h *handlers) getEndpointMetrics(w *recorder, r *http.Request) error {
	return h.scrape(w, r, w.router.endpointScrapes, h.State.CountClusters(), func() prometheus.Gatherer {
		return h.Metrics.EndpointMetrics(r.Context(), scopeOf(w))
	})
}
