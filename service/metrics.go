package service

import (
	"runtime"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

const (
	// MaxClustersWithSeries is how many clusters have series of their own; the
	// rest are counted together as OverflowCluster.
	MaxClustersWithSeries = 10_000
	// OverflowCluster stands for the clusters without series of their own.
	OverflowCluster = "_other"
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
			Help: "What became of pushes? By result: applied, unchanged, rejected, precondition_failed, dry_run, blocked.",
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
			Help: "Who waits for changes now? By kind: longpoll.",
		}, []string{"kind"}),
	}
	for _, o := range []pushOutcome{pushApplied, pushUnchanged, pushRejected, pushPreconditionFailed, pushDryRun, pushBlocked} {
		m.pushes.WithLabelValues(string(o))
	}
	m.watchers.WithLabelValues("longpoll")
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

// The series of a cluster, and of the resource directory.
var (
	filesDesc = describe("lbd_resource_files",
		"Is there a resource file that is not in use? Files by state: good, bad.", "state")
	picksDesc = describe("lbd_picks_total",
		"What happened to every pick, each once? By result: ok, or the code of its refusal.", "cluster", "target", "result")
	localityPicksDesc = describe("lbd_locality_picks_total",
		"Where do good picks go?", "cluster", "target", "priority", "locality")
	dropsDesc = describe("lbd_drops_total",
		"Who is being shed, by which rule?", "cluster", "category")
	dropRatioDesc = describe("lbd_drop_ratio",
		"Which part of its picks is each drop category configured to shed? 0 to 1.", "cluster", "category")
	rejectionsDesc = describe("lbd_circuit_breaker_rejections_total",
		"How many picks did the circuit breaker refuse?", "cluster")
	inFlightDesc = describe("lbd_circuit_breaker_in_flight",
		"How full is the circuit breaker: how many requests are in flight?", "cluster")
	maxRequestsDesc = describe("lbd_circuit_breaker_max_requests",
		"How many requests may be in flight?", "cluster")
	openDesc = describe("lbd_circuit_breaker_open",
		"Is the circuit breaker full now? 0 or 1.", "cluster")
	leasesDesc = describe("lbd_leases_active",
		"How many leases are held now?", "cluster")
	leasesEndedDesc = describe("lbd_leases_finished_total",
		"How did leases end, and who forgets to say done? By outcome: success, error, cancelled, expired.", "cluster", "outcome")
	endpointsDesc = describe("lbd_endpoints",
		"How many endpoints are in each state?", "cluster", "target", "priority", "state")
	stateDesc = describe("lbd_cluster_state",
		"Which connectivity state is the cluster in? 1 for that one, 0 for the others.", "cluster", "target", "state")
	priorityDesc = describe("lbd_cluster_priority",
		"Which priority is in use? -1 is none.", "cluster", "target")
	switchesDesc = describe("lbd_priority_switches_total",
		"Why did the priority in use change? By reason: init_timeout, failure, recovered, update.", "cluster", "target", "reason")
	connectsDesc = describe("lbd_connect_attempts_total",
		"How do connection attempts end? By result: ok, error.", "cluster", "target", "result")
	lossesDesc = describe("lbd_disconnects_total",
		"How are connections lost?", "cluster", "target", "reason")
	updatedDesc = describe("lbd_cluster_updated_timestamp_seconds",
		"When did the cluster's resources change last? Unix time.", "cluster")
	staleDesc = describe("lbd_cluster_stale",
		"Is the source of the cluster's resources away? 0 or 1.", "cluster")
)

func describe(name, question string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, question, labels, nil)
}

// collector emits the series of every cluster from what the targets hold.
type collector struct{ service *Service }

// Describe sends nothing: which series there are depends on the clusters.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads every target. Series that an idle cluster would only show as
// zero are left out, but for those whose first count matters.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.files(out)
	rest := newSeries(OverflowCluster)
	overflow := false
	for _, t := range c.service.targets.all() {
		sum := t.channel.Summary().Clusters[t.cluster]
		if !t.ownSeries {
			overflow = true
			rest.add(c.service, t, c.service.counters.Get(t.service()), sum)
			continue
		}
		s := newSeries(t.cluster)
		s.add(c.service, t, c.service.counters.Get(t.service()), sum)
		s.emit(out)
		c.state(out, t, sum)
	}
	if overflow {
		rest.emit(out)
	}
}

// files emits how the resource directory is, where there is one.
func (c *collector) files(out chan<- prometheus.Metric) {
	if c.service.files.Load() == nil {
		return
	}
	good, bad := 0, 0
	for _, f := range c.service.Files().Files {
		if f.Error == "" {
			good++
		} else {
			bad++
		}
	}
	out <- prometheus.MustNewConstMetric(filesDesc, prometheus.GaugeValue, float64(good), "good")
	out <- prometheus.MustNewConstMetric(filesDesc, prometheus.GaugeValue, float64(bad), "bad")
}

// state emits what cannot be summed over clusters.
func (c *collector) state(out chan<- prometheus.Metric, t *target, sum policy.Summary) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{t.cluster}, labels...)...)
	}
	for _, s := range []connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure} {
		gauge(stateDesc, flag(s == sum.State), "", stateLabels[s])
	}
	gauge(priorityDesc, float64(sum.Priority), "")
	cc := t.clusterConfig()
	gauge(updatedDesc, float64(updated(cc).UnixMilli())/1000)
	gauge(staleDesc, 0)
	if cc.Err != nil {
		return
	}
	b := c.service.breaker(t, cc.Cluster)
	gauge(openDesc, flag(b.Open))
	if cc.Assignment != nil {
		for _, d := range cc.Assignment.Drops {
			gauge(dropRatioDesc, float64(d.PerMillion)/1e6, d.Category)
		}
	}
}

var stateLabels = map[connectivity.State]string{
	connectivity.Ready:            "ready",
	connectivity.Connecting:       "connecting",
	connectivity.Idle:             "idle",
	connectivity.TransientFailure: "transient_failure",
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// series are the sums of one cluster, or of several.
type series struct {
	cluster  string
	counters map[*prometheus.Desc]map[string]float64 // by the labels after cluster, joined
	gauges   map[*prometheus.Desc]map[string]float64
}

// labelSeparator joins labels. No name that can be pushed holds it.
const labelSeparator = "\x00"

func newSeries(cluster string) *series {
	return &series{
		cluster:  cluster,
		counters: make(map[*prometheus.Desc]map[string]float64),
		gauges:   make(map[*prometheus.Desc]map[string]float64),
	}
}

func sum(m map[*prometheus.Desc]map[string]float64, d *prometheus.Desc, v float64, labels ...string) {
	if m[d] == nil {
		m[d] = make(map[string]float64)
	}
	var key strings.Builder
	for _, l := range labels {
		key.WriteString(labelSeparator + l)
	}
	m[d][key.String()] += v
}

// add sums what the target counts.
func (s *series) add(svc *Service, t *target, counters *policy.ClusterCounters, summary policy.Summary) {
	sum(s.counters, picksDesc, 0, "", string(resultOK))
	for r, n := range t.picks.read() {
		sum(s.counters, picksDesc, float64(n), "", string(r))
	}
	for at, n := range localityPicks(t) {
		sum(s.counters, localityPicksDesc, float64(n), "", strconv.Itoa(at.priority), at.locality.String())
	}
	if len(summary.Priorities) > 1 { // the first switch is a rise from zero
		for _, r := range policy.SwitchReasons {
			sum(s.counters, switchesDesc, 0, "", string(r))
		}
	}
	for r, n := range t.switches.read() {
		sum(s.counters, switchesDesc, float64(n), "", string(r))
	}
	for r, n := range t.connects.read() {
		sum(s.counters, connectsDesc, float64(n), "", r)
	}
	for r, n := range t.losses.read() {
		sum(s.counters, lossesDesc, float64(n), "", r)
	}
	for o, n := range t.ended.read() {
		sum(s.counters, leasesEndedDesc, float64(n), string(o))
	}
	sum(s.gauges, leasesDesc, float64(t.leases.Load()))
	cc := t.clusterConfig()
	if cc.Err != nil {
		return
	}
	b := svc.breaker(t, cc.Cluster)
	sum(s.counters, rejectionsDesc, float64(b.Rejected))
	sum(s.gauges, inFlightDesc, float64(b.InFlight))
	sum(s.gauges, maxRequestsDesc, float64(b.MaxRequests))
	if counters != nil {
		for category, n := range counters.Drops() {
			sum(s.counters, dropsDesc, float64(n), category)
		}
	}
	s.addEndpoints(t, summary)
}

// addEndpoints sums the endpoints by priority and state. READY is always there.
func (s *series) addEndpoints(t *target, summary policy.Summary) {
	count := func(priority int, state string, n int) {
		if n > 0 || state == "ready" {
			sum(s.gauges, endpointsDesc, float64(n), "", strconv.Itoa(priority), state)
		}
	}
	for p, c := range summary.Priorities {
		count(p, "ready", c.Ready)
		count(p, "connecting", c.Connecting)
		count(p, "idle", c.Idle)
		count(p, "transient_failure", c.TransientFailure)
	}
	if a := t.clusterConfig().Assignment; a != nil {
		for _, l := range a.Localities {
			for _, e := range l.Endpoints {
				if !e.Usable() {
					count(int(l.Priority), "unhealthy", 1)
				}
			}
		}
	}
}

func (s *series) emit(out chan<- prometheus.Metric) {
	emit(out, s.cluster, prometheus.CounterValue, s.counters)
	emit(out, s.cluster, prometheus.GaugeValue, s.gauges)
}

func emit(out chan<- prometheus.Metric, cluster string, kind prometheus.ValueType, m map[*prometheus.Desc]map[string]float64) {
	for desc, values := range m {
		for key, v := range values {
			labels := strings.Split(cluster+key, labelSeparator)
			out <- prometheus.MustNewConstMetric(desc, kind, v, labels...)
		}
	}
}
