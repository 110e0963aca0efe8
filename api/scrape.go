package api

import (
	"bytes"
	"compress/gzip"
	"io"
	"log/slog"
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/observe"
)

// seriesBytes is about what the series of a cluster take.
const seriesBytes = 8 << 10

// scrape writes metrics. Anyone may scrape a listener without identities: one scrape of the same slots gathers at a
// time, and what is not yet written counts against the quota of its caller. There are so many clusters. from may wait
// for trees, so that it has no turn. Parts have none either: each takes 1 ms, and would wait for whole responses.
func (h *handlers) scrape(w *recorder, r *http.Request, slots chan struct{}, clusters int, from func() *observe.Gathered) error {
	if err := w.takeSlot(r.Context(), slots); err != nil {
		return err
	}
	if err := takeTurnOf(w, r, clusters, seriesBytes); err != nil {
		return err
	}
	metrics := from()
	if metrics.Err != nil {
		return metrics.Err
	}
	w.endTurn()
	const free = 1 << 20 // bytes that need no quota, so that a small daemon can always be scraped
	if err := w.answered(int64(max(0, metrics.Bytes-free))); err != nil {
		return err
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	w.Header().Set("Content-Type", string(format))
	large := &largeWriter{w: w}
	out := io.Writer(large)
	if acceptsGzip(r.Header) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(out)
		defer func() { _ = z.Close() }() // a caller that has left misses nothing
		out = z
	}
	w.WriteHeader(http.StatusOK)
	last := ""
	for part := range metrics.Parts {
		runtime.Gosched() // for picks
		text := encodeSeries(part, format, part.GetName() == last)
		large.written = 0 // the next write has a new deadline: encoding is no time that the caller has to read
		if _, err := out.Write(text); err != nil {
			panic(http.ErrAbortHandler) // a partial response must not look complete
		}
		last = part.GetName()
	}
	return nil
}

// encodeSeries returns a part of a family in a format. A part after the first one has no comments.
func encodeSeries(part *dto.MetricFamily, format expfmt.Format, goesOn bool) []byte {
	var text bytes.Buffer
	_ = expfmt.NewEncoder(&text, format).Encode(part) // a buffer takes all, and the families are valid
	for goesOn && bytes.HasPrefix(text.Bytes(), []byte("# ")) {
		_, _ = text.ReadBytes('\n')
	}
	return text.Bytes()
}

// @Summary     Get metrics in Prometheus' text format
// @Description A caller with clusters gets the series of these, by the labels cluster and target, and those of the process.
// @Produce     plain
// @Success     200 {string} string "metrics"
// @Router      /metrics [get]
func (h *handlers) getMetrics(w *recorder, r *http.Request) error {
	clusters := min(h.State.CountClusters(), ledger.MaxClustersWithSeries)
	return h.scrape(w, r, w.router.scrapes, clusters, func() *observe.Gathered {
		return h.gather(observe.Within(scopeOf(w), h.Metrics))
	})
}

// gather returns the metrics that can be gathered: some are better than none.
func (h *handlers) gather(from prometheus.Gatherer) *observe.Gathered {
	families, err := from.Gather()
	if err != nil {
		h.Logger.Error("cannot gather metrics", slog.Any("error", err))
	}
	return observe.Divide(families)
}

// @Summary     Get metrics of endpoints in Prometheus' text format
// @Description Three series per endpoint, for at most 100,000 endpoints. lbd_endpoint_series_truncated is 1 if endpoints are missing.
// @Produce     plain
// @Success     200 {string} string "metrics"
// @Router      /metrics/endpoints [get]
func (h *handlers) getEndpointMetrics(w *recorder, r *http.Request) error {
	return h.scrape(w, r, w.router.endpointScrapes, 0, func() *observe.Gathered {
		return h.Metrics.EndpointMetrics(reserving(w, r), scopeOf(w))
	})
}
