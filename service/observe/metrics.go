package observe

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are lbd's metrics.
type Metrics struct {
	state        *State
	registry     *prometheus.Registry
	maxEndpoints int // with series
}

// NewMetrics returns the metrics of a state and a history. The other parts of the
// daemon add theirs to its registry.
func NewMetrics(s *State, h *History) *Metrics {
	m := &Metrics{state: s, registry: prometheus.NewRegistry(), maxEndpoints: MaxEndpointsWithSeries}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lbd_build_info",
		Help:        "Version of lbd. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": s.options.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		s.waiting, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{state: s, history: h},
	)
	return m
}

// Registry holds all of lbd's metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }
