package observe

import (
	"iter"
	"slices"
	"strings"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Gather returns all metrics, in the order of their names.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) {
	all, err := m.Registry.Gather()
	g := newGathering()
	m.state.gather(g, m.timeline.store)
	return sorted(append(all, g.families...)), err
}

// Gathered are metrics that are not yet written.
type Gathered struct {
	// Bytes is about what they take until then.
	Bytes int
	// Parts yields the families in the order of their names, each in parts of a few series.
	Parts iter.Seq[*dto.MetricFamily]
	// Err is why there are none.
	Err error
}

// partSeries is the maximum number of series of a part: their text and what it is made of take little memory.
const partSeries = 1000

// Divide returns families, in the order of their names, in parts.
func Divide(families []*dto.MetricFamily) *Gathered {
	g := &Gathered{Parts: func(yield func(*dto.MetricFamily) bool) {
		for _, f := range families {
			for metrics := range slices.Chunk(f.Metric, partSeries) {
				if !yield(&dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit, Metric: metrics}) {
					return
				}
			}
		}
	}}
	for _, f := range families {
		for _, m := range f.Metric {
			g.Bytes += int(unsafe.Sizeof(*m))
			for _, l := range m.Label {
				g.Bytes += len(l.GetValue()) + int(unsafe.Sizeof(l))
			}
		}
	}
	return g
}

// Gather returns the families. It is for prometheus.Gatherer.
func (g *Gathered) Gather() (all []*dto.MetricFamily, err error) {
	for part := range g.Parts {
		if n := len(all); n > 0 && all[n-1].GetName() == part.GetName() {
			all[n-1].Metric = append(all[n-1].Metric, part.Metric...)
		} else {
			all = append(all, part)
		}
	}
	return all, g.Err
}

// sorted returns families in the order of their names.
func sorted(all []*dto.MetricFamily) []*dto.MetricFamily {
	slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// gathering builds the series of families in the form in which they are encoded. A registry would
// hash and sort each series to check that it is there only once, which takes longer than
// everything else; here, each series is added once.
type gathering struct {
	families []*dto.MetricFamily
	byFamily map[*Family]*dto.MetricFamily
	pairs    map[labelPair]*dto.LabelPair // those that many series have

	// What follows are slabs: a series takes its parts from them.
	metrics  []dto.Metric
	counters []dto.Counter
	gauges   []dto.Gauge
	values   []float64
	labels   []*dto.LabelPair
}

type labelPair struct{ name, value string }

func newGathering() *gathering {
	return &gathering{byFamily: make(map[*Family]*dto.MetricFamily), pairs: make(map[labelPair]*dto.LabelPair)}
}

// add adds a series with the values of its labels, in the order of the family.
func (g *gathering) add(f *Family, v float64, values ...string) {
	family := g.byFamily[f]
	if family == nil {
		family = &dto.MetricFamily{Name: &f.name, Help: &f.help, Type: dto.MetricType_GAUGE.Enum()}
		if f.kind == prometheus.CounterValue {
			family.Type = dto.MetricType_COUNTER.Enum()
		}
		g.byFamily[f] = family
		g.families = append(g.families, family)
	}
	m := take(&g.metrics)
	value := take(&g.values)
	*value = v
	if f.kind == prometheus.CounterValue {
		m.Counter = take(&g.counters)
		m.Counter.Value = value
	} else {
		m.Gauge = take(&g.gauges)
		m.Gauge.Value = value
	}
	values = values[:len(f.labels)]
	if len(g.labels) < len(values) {
		g.labels = make([]*dto.LabelPair, slabSize)
	}
	m.Label, g.labels = g.labels[:len(values):len(values)], g.labels[len(values):]
	for i, at := range f.order {
		m.Label[i] = g.pair(&f.labels[at], values[at])
	}
	family.Metric = append(family.Metric, m)
}

// pair returns a label. Series share it: the same cluster has many.
func (g *gathering) pair(name *string, value string) *dto.LabelPair {
	key := labelPair{*name, value}
	p := g.pairs[key]
	if p == nil {
		value = valid(value)
		p = &dto.LabelPair{Name: name, Value: &value}
		g.pairs[key] = p
	}
	return p
}

const slabSize = 256

// take returns the next element of a slab, which is replaced when it is used up.
func take[T any](slab *[]T) *T {
	if len(*slab) == 0 {
		*slab = make([]T, slabSize)
	}
	next := &(*slab)[0]
	*slab = (*slab)[1:]
	return next
}

// series are those of one cluster, or the sums of those of several.
type series struct {
	cluster string
	values  []seriesValue
}

// maxLabels is the maximum number of labels of a series after the cluster.
const maxLabels = 3

type seriesValue struct {
	family *Family
	labels [maxLabels]string
	value  float64
}

// add adds v to the series with these labels after the cluster. There are few.
func (s *series) add(f *Family, v float64, labels ...string) {
	added := seriesValue{family: f, value: v}
	for i, l := range labels {
		added.labels[i] = valid(l)
	}
	for i := range s.values {
		if known := &s.values[i]; known.family == f && known.labels == added.labels {
			known.value += v
			return
		}
	}
	s.values = append(s.values, added)
}

// emit adds the series to g, sorted by their labels, and removes them from s.
func (s *series) emit(g *gathering) {
	slices.SortFunc(s.values, func(a, b seriesValue) int { return slices.Compare(a.labels[:], b.labels[:]) })
	for i := range s.values {
		v := &s.values[i]
		labels := [1 + maxLabels]string{s.cluster}
		copy(labels[1:], v.labels[:])
		g.add(v.family, v.value, labels[:len(v.family.labels)]...)
	}
	s.values = s.values[:0]
}
