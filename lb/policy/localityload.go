package policy

import (
	"sync"
	"sync/atomic"

	orcav3 "github.com/cncf/xds/go/xds/data/orca/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// LocalityLoad counts the picks of one locality of one {cluster, EDS service
// name}, for load reports.
type LocalityLoad struct {
	Locality resource.Locality

	unheld     atomic.Uint64
	held       atomic.Uint64
	inProgress atomic.Int64
	succeeded  atomic.Uint64
	failed     atomic.Uint64

	metrics metricLoads

	// Guarded by the ClusterCounters' mu.
	naming
	reported LoadCounts // what the reader's last acknowledged reading came to
	read     LoadCounts // what its last reading came to
}

// Start counts a pick. One that is not held succeeds at once: its end is not known.
func (l *LocalityLoad) Start(held bool) {
	if !held {
		l.unheld.Add(1)
		return
	}
	l.held.Add(1)
	l.inProgress.Add(1)
}

func (l *LocalityLoad) finish(outcome Outcome) {
	switch outcome {
	case OutcomeSuccess:
		l.succeeded.Add(1)
	case OutcomeError, OutcomeCancelled:
		l.failed.Add(1)
	case OutcomeExpired:
	}
	l.inProgress.Add(-1)
}

// LoadCounts is a reading of a LocalityLoad.
type LoadCounts struct {
	Issued     uint64
	Succeeded  uint64
	Failed     uint64
	InProgress int64
}

// Counts reads the load while picks start and end. It counts no end without a start,
// and each pick that ends meanwhile as in progress or ended.
func (l *LocalityLoad) Counts() LoadCounts {
	inProgress := l.inProgress.Load()
	succeeded, failed := l.succeeded.Load(), l.failed.Load()
	unheld := l.unheld.Load()
	return LoadCounts{
		Issued:     unheld + l.held.Load(),
		Succeeded:  unheld + succeeded,
		Failed:     failed,
		InProgress: inProgress,
	}
}

// since returns the difference to an earlier reading.
func (c LoadCounts) since(before LoadCounts) LoadCounts {
	return LoadCounts{
		Issued:     c.Issued - before.Issued,
		Succeeded:  c.Succeeded - before.Succeeded,
		Failed:     c.Failed - before.Failed,
		InProgress: c.InProgress,
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
	if which.CPUUtilization {
		add(&m.fresh.cpu, 1, r.GetCpuUtilization())
	}
	if which.MemUtilization {
		add(&m.fresh.mem, 1, r.GetMemUtilization())
	}
	if which.ApplicationUtilization {
		add(&m.fresh.application, 1, r.GetApplicationUtilization())
	}
	if which.AllNamed {
		for name, value := range r.GetNamedMetrics() {
			m.fresh.addNamed(name, 1, value)
		}
		return
	}
	for _, name := range which.Named {
		if value, ok := r.GetNamedMetrics()[name]; ok {
			m.fresh.addNamed(name, 1, value)
		}
	}
}

// take returns the sums since the last acknowledged reading, by the names in load
// reports.
func (m *metricLoads) take() map[string]resource.MetricLoad {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read.addAll(&m.fresh)
	m.fresh = metricSums{}
	return m.read.byName()
}

// acknowledge confirms that the result of take was reported.
func (m *metricLoads) acknowledge() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read = metricSums{}
}

func (m *metricLoads) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh, m.read = metricSums{}, metricSums{}
}

type metricSums struct {
	cpu, mem, application resource.MetricLoad

	named map[string]resource.MetricLoad
}

func add(m *resource.MetricLoad, requests uint64, total float64) {
	m.Requests += requests
	m.Total += total
}

func (s *metricSums) addNamed(name string, requests uint64, total float64) {
	sum, ok := s.named[name]
	if !ok && len(s.named) >= maxNamedMetrics {
		return
	}
	if s.named == nil {
		s.named = make(map[string]resource.MetricLoad)
	}
	add(&sum, requests, total)
	s.named[name] = sum
}

func (s *metricSums) addAll(other *metricSums) {
	add(&s.cpu, other.cpu.Requests, other.cpu.Total)
	add(&s.mem, other.mem.Requests, other.mem.Total)
	add(&s.application, other.application.Requests, other.application.Total)
	for name, sum := range other.named {
		s.addNamed(name, sum.Requests, sum.Total)
	}
}

// byName returns the sums that are not zero, or nil.
func (s *metricSums) byName() map[string]resource.MetricLoad {
	var out map[string]resource.MetricLoad
	set := func(name string, sum resource.MetricLoad) {
		if sum.Requests == 0 {
			return
		}
		if out == nil {
			out = make(map[string]resource.MetricLoad)
		}
		out[name] = sum
	}
	set(resource.MetricCPUUtilization, s.cpu)
	set(resource.MetricMemUtilization, s.mem)
	set(resource.MetricApplicationUtilization, s.application)
	for name, sum := range s.named {
		set(resource.NamedMetricPrefix+name, sum)
	}
	return out
}
