package policy

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// LocalityLoad counts the picks of one locality of one {cluster, EDS service
// name}, for load reports.
type LocalityLoad struct {
	// owner is nil once the counters are without the locality. A pick reads it with what it counts.
	owner atomic.Pointer[ClusterCounters]

	unheld     atomic.Uint64
	held       atomic.Uint64
	inProgress InFlight
	succeeded  atomic.Uint64
	failed     atomic.Uint64

	// place is the first one of the locality. With what is above, it fills a cache line, of
	// which a pick counts in both: processors do not exchange two.
	place Place

	metrics metricLoads

	// Guarded by the ClusterCounters' mu.
	naming
	placed   bool                // place is in use
	reported resource.LoadCounts // what the reader's last acknowledged reading came to
	read     resource.LoadCounts // what its last reading came to
}

// Start counts a pick. One that is not held succeeds at once: its end is not known.
func (l *LocalityLoad) Start(held bool) {
	if !held {
		l.unheld.Add(1)
		return
	}
	l.held.Add(1)
	l.inProgress.Add(InFlightUnit)
}

func (l *LocalityLoad) finish(outcome Outcome) {
	switch outcome {
	case OutcomeSuccess:
		l.succeeded.Add(1)
	case OutcomeError, OutcomeCancelled, OutcomeUnreachable:
		l.failed.Add(1)
	case OutcomeExpired:
	}
	l.inProgress.Add(-InFlightUnit)
}

// use counts reported requests. They were issued elsewhere: the picks for them are not counted.
func (l *LocalityLoad) use(r *Usage) {
	l.held.Add(uint64(r.Successes) + uint64(r.Errors) + uint64(r.Cancelled))
	l.succeeded.Add(uint64(r.Successes))
	l.failed.Add(uint64(r.Errors) + uint64(r.Cancelled))
	r.count(&l.inProgress)
}

// Counts reads the load while picks start and end. It counts no end without a start,
// and each pick that ends meanwhile as in progress or ended.
func (l *LocalityLoad) Counts() resource.LoadCounts {
	inProgress := (l.inProgress.Load() + InFlightUnit/2) / InFlightUnit
	succeeded, failed := l.succeeded.Load(), l.failed.Load()
	unheld := l.unheld.Load()
	return resource.LoadCounts{
		Issued:     unheld + l.held.Load(),
		Succeeded:  unheld + succeeded,
		Failed:     failed,
		InProgress: uint64(inProgress),
	}
}

// record counts the metrics that an upstream reported.
func (l *LocalityLoad) record(which *resource.LoadMetrics, serverLoad any) {
	report, ok := serverLoad.(*orcav3.OrcaLoadReport)
	if which != nil && ok && report != nil {
		l.metrics.add(which, report)
	}
}

// maxNamedMetrics limits the named metrics of a locality between two reports, because
// upstreams choose the names. Others are not counted.
const maxNamedMetrics = 100

// metricLoads sums up metrics until they are reported.
type metricLoads struct {
	mu    sync.Mutex
	fresh metricSums // since the last reading
	read  metricSums // of readings that are not acknowledged
}

func (m *metricLoads) add(which *resource.LoadMetrics, r *orcav3.OrcaLoadReport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	count := func(name string, value float64) { m.fresh.add(name, resource.MetricLoad{Requests: 1, Total: value}) }
	if which.CPUUtilization {
		count(resource.MetricCPUUtilization, r.GetCpuUtilization())
	}
	if which.MemUtilization {
		count(resource.MetricMemUtilization, r.GetMemUtilization())
	}
	if which.ApplicationUtilization {
		count(resource.MetricApplicationUtilization, r.GetApplicationUtilization())
	}
	for name, value := range r.GetNamedMetrics() {
		if which.AllNamed || slices.Contains(which.Named, name) {
			count(resource.NamedMetricPrefix+name, value)
		}
	}
}

// take returns the sums since the last acknowledged reading, or nil.
func (m *metricLoads) take() map[string]resource.MetricLoad {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, sum := range m.fresh.byName {
		m.read.add(name, sum)
	}
	m.fresh = metricSums{}
	return maps.Clone(m.read.byName)
}

// acknowledge confirms that the result of take was reported.
func (m *metricLoads) acknowledge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read = metricSums{}
}

// metricSums sums up metrics by their names in load reports.
type metricSums struct {
	byName map[string]resource.MetricLoad
	named  int // how many of them are named metrics
}

func (s *metricSums) add(name string, more resource.MetricLoad) {
	sum, ok := s.byName[name]
	if !ok && strings.HasPrefix(name, resource.NamedMetricPrefix) {
		if s.named == maxNamedMetrics {
			return
		}
		s.named++
	}
	if s.byName == nil {
		s.byName = make(map[string]resource.MetricLoad)
	}
	s.byName[name] = resource.MetricLoad{Requests: sum.Requests + more.Requests, Total: sum.Total + more.Total}
}
