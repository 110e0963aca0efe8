package service

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	// MaxClustersWithSeries is how many clusters have series of their own; the
	// rest are counted together as OverflowCluster.
	MaxClustersWithSeries = 10_000
	// OverflowCluster stands for the clusters without series of their own. A
	// cluster that bears this name, which none can that is pushed, is one of them.
	OverflowCluster = resource.ReservedName
)

// metrics holds what is counted as it happens. What a target counts by itself
// is read by the collector, so that a cluster's series go with the cluster.
type metrics struct {
	registry     *prometheus.Registry
	pushes       *prometheus.CounterVec
	pickDuration prometheus.Histogram
	pickWait     prometheus.Histogram
	watchers     *prometheus.GaugeVec
}

func newMetrics(s *Service) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lbd_pushes_total",
			Help: "What became of pushes? By result: applied, unchanged, dry_run; or why not: rejected breaks a rule, not_found was to be deleted, else the code of its refusal.",
		}, []string{"result"}),
		pickDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lbd_pick_duration_seconds",
			Help:    "How long does the decision of a pick take? One pick in 256 is timed, queueing left out.",
			Buckets: []float64{100e-9, 250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 50e-6, 250e-6, 1e-3, 10e-3},
		}),
		pickWait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "lbd_pick_wait_seconds",
			Help:    "How long do picks queue for an endpoint to become READY? Only those that queue.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}),
		watchers: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lbd_watchers",
			Help: "Who waits for changes now? By kind: sse, longpoll.",
		}, []string{"kind"}),
	}
	for _, o := range pushOutcomes {
		m.pushes.WithLabelValues(string(o))
	}
	m.watchers.WithLabelValues("longpoll")
	m.watchers.WithLabelValues("sse")
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lbd_build_info",
		Help:        "Which lbd is this? Always 1.",
		ConstLabels: prometheus.Labels{"version": s.options.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		m.pushes, m.pickDuration, m.pickWait, m.watchers, build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&collector{service: s},
	)
	return m
}
