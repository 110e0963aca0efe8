package observe

import (
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are lbd's metrics: a registry whose Gather adds the series of clusters, of which there may
// be hundreds of thousands.
type Metrics struct {
	*prometheus.Registry

	state        *State
	timeline     *Timeline
	maxEndpoints int // with series
}

// NewMetrics returns a registry with the metrics of a state and a timeline. The other parts of the
// daemon add theirs.
func NewMetrics(r *prometheus.Registry, s *State, t *Timeline) *Metrics {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "lbd_build_info",
		Help:        "Version of lbd. The value is always 1.",
		ConstLabels: prometheus.Labels{"version": s.options.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	r.MustRegister(
		s.waiting, build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return &Metrics{Registry: r, state: s, timeline: t, maxEndpoints: MaxEndpointsWithSeries}
}

// Collector sends series that are not known in advance. It is the Collect of a
// [prometheus.Collector].
type Collector func(out chan<- prometheus.Metric)

// Describe sends nothing.
func (Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current series.
func (c Collector) Collect(out chan<- prometheus.Metric) { c(out) }

// Family is the series of one name.
type Family struct {
	name, help string
	kind       prometheus.ValueType
	labels     []string
	// order has the places of the labels in the order of their names.
	order []int
	desc  *prometheus.Desc
}

// Counter returns the family of a counter.
func Counter(name, help string, labels ...string) *Family {
	return newFamily(prometheus.CounterValue, name, help, labels)
}

// Gauge returns the family of a gauge.
func Gauge(name, help string, labels ...string) *Family {
	return newFamily(prometheus.GaugeValue, name, help, labels)
}

func newFamily(kind prometheus.ValueType, name, help string, labels []string) *Family {
	f := &Family{name: name, help: help, kind: kind, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	for i := range labels {
		f.order = append(f.order, i)
	}
	slices.SortFunc(f.order, func(i, j int) int { return strings.Compare(labels[i], labels[j]) })
	return f
}

// Metric returns one series of the family. An invalid one makes the scrape report an
// error, and leaves the other series.
func (f *Family) Metric(v float64, labels ...string) prometheus.Metric {
	for i := range labels {
		labels[i] = valid(labels[i])
	}
	m, err := prometheus.NewConstMetric(f.desc, f.kind, v, labels...)
	if err != nil {
		return prometheus.NewInvalidMetric(f.desc, err)
	}
	return m
}

// valid returns a name of a management server, which nothing has validated, as a label.
func valid(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
