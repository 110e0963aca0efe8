package api

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// goneCaller is the answer to a caller that has hung up.
type goneCaller struct{ http.ResponseWriter }

func (goneCaller) Write([]byte) (int, error) {
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
}

// unwell is a collector whose metrics cannot be gathered.
type unwell struct{ *prometheus.Desc }

func (c unwell) Describe(out chan<- *prometheus.Desc) { out <- c.Desc }

func (c unwell) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.NewInvalidMetric(c.Desc, errors.New("unwell"))
}

// TestScrapeErrors: a metric that cannot be gathered is logged, and a caller that hangs
// up is not.
func TestScrapeErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		writer http.ResponseWriter
		bad    bool
	}{
		{"a caller that hangs up", goneCaller{httptest.NewRecorder()}, false},
		{"a bad metric", httptest.NewRecorder(), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbd_a"}), prometheus.NewGauge(prometheus.GaugeOpts{Name: "lbd_b"}))
			if tt.bad {
				registry.MustRegister(unwell{prometheus.NewDesc("lbd_c", "", nil, nil)})
			}
			var log bytes.Buffer
			expose(registry, slog.New(slog.NewTextHandler(&log, nil))).ServeHTTP(tt.writer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
			if logged := strings.Contains(log.String(), "level=ERROR"); logged != tt.bad {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}
