package observe

import (
	"runtime"
	"strings"

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
		Collector(func(out chan<- prometheus.Metric) { s.collect(out, h.store) }),
	)
	return m
}

// Registry holds all of lbd's metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Collector sends series that are not known in advance. It is the Collect of a
// [prometheus.Collector].
type Collector func(out chan<- prometheus.Metric)

// Describe sends nothing.
func (Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the current series.
func (c Collector) Collect(out chan<- prometheus.Metric) { c(out) }

// Family is the series of one name.
type Family struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels int
}

// Counter returns the family of a counter.
func Counter(name, help string, labels ...string) *Family {
	return &Family{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue, len(labels)}
}

// Gauge returns the family of a gauge.
func Gauge(name, help string, labels ...string) *Family {
	return &Family{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue, len(labels)}
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

// maxLabels is the maximum number of labels of a series after the cluster.
const maxLabels = 3

type seriesKey struct {
	family *Family
	labels [maxLabels]string
}

// series are those of one cluster, or the sums of those of several.
type series struct {
	cluster string
	values  map[seriesKey]float64
}

func newSeries(cluster string) *series {
	return &series{cluster: cluster, values: make(map[seriesKey]float64)}
}

// add adds v to the series with these labels after the cluster.
func (s *series) add(f *Family, v float64, labels ...string) {
	key := seriesKey{family: f}
	for i, l := range labels {
		key.labels[i] = valid(l)
	}
	s.values[key] += v
}

func (s *series) emit(out chan<- prometheus.Metric) {
	for key, v := range s.values {
		labels := make([]string, 1, 1+maxLabels)
		labels[0] = s.cluster
		out <- key.family.Metric(v, append(labels, key.labels[:key.family.labels-1]...)...)
	}
}
