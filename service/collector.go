package service

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
)

// The series of a cluster, and of the resource directory.
var (
	filesFamily = gauge("lbd_resource_files",
		"Is there a resource file that is not in use? Files by state: good, bad.", "state")
	picksFamily = counter("lbd_picks_total",
		"What happened to every pick, each once? By result: ok, or the code of its refusal.", "cluster", "target", "result")
	localityPicksFamily = counter("lbd_locality_picks_total",
		"Where do good picks go?", "cluster", "target", "priority", "locality")
	dropsFamily = counter("lbd_drops_total",
		"Who is being shed, by which rule?", "cluster", "category")
	dropRatioFamily = gauge("lbd_drop_ratio",
		"Which part of its picks is each drop category configured to shed? 0 to 1.", "cluster", "category")
	rejectionsFamily = counter("lbd_circuit_breaker_rejections_total",
		"How many picks did the circuit breaker refuse?", "cluster")
	inFlightFamily = gauge("lbd_circuit_breaker_in_flight",
		"How full is the circuit breaker: how many requests are in flight?", "cluster")
	maxRequestsFamily = gauge("lbd_circuit_breaker_max_requests",
		"How many requests may be in flight?", "cluster")
	openFamily = gauge("lbd_circuit_breaker_open",
		"Is the circuit breaker full now? 0 or 1.", "cluster")
	leasesFamily = gauge("lbd_leases_active",
		"How many leases are held now?", "cluster")
	leasesEndedFamily = counter("lbd_leases_finished_total",
		"How did leases end, and who forgets to say done? By outcome: success, error, cancelled, expired.", "cluster", "outcome")
	endpointsFamily = gauge("lbd_endpoints",
		"How many endpoints are in each state?", "cluster", "target", "priority", "state")
	stateFamily = gauge("lbd_cluster_state",
		"Which connectivity state is the cluster in? 1 for that one, 0 for the others.", "cluster", "target", "state")
	priorityFamily = gauge("lbd_cluster_priority",
		"Which priority is in use? -1 is none.", "cluster", "target")
	switchesFamily = counter("lbd_priority_switches_total",
		"Why did the priority in use change? By reason: init_timeout, failure, recovered, update.", "cluster", "target", "reason")
	connectsFamily = counter("lbd_connect_attempts_total",
		"How do connection attempts end? By result: ok, error.", "cluster", "target", "result")
	lossesFamily = counter("lbd_disconnects_total",
		"How are connections lost?", "cluster", "target", "reason")
	updatedFamily = gauge("lbd_cluster_updated_timestamp_seconds",
		"When did the cluster's resources change last? Unix time.", "cluster")
	staleFamily = gauge("lbd_cluster_stale",
		"Is the source of the cluster's resources away? 0 or 1.", "cluster")
)

// collector emits the series of every cluster from what the targets hold.
//
// A cluster that nobody picks from has 15 series while its priority in use is
// READY, 2 for each drop category, 2 if it has several priorities, and 1 for each
// priority but the first: 25 with three of each. Picks add one for each result but ok, and one
// for each place that was picked from; leases one for each outcome; failures
// one for each state that endpoints of a priority are in, each reason of a
// switch, and each way in which connections are lost.
//
// Circuit breaker and drops are counted for the whole process, under the cluster
// that they belong to. An AGGREGATE has no series of them, so that sums count
// nothing twice: its leaves have, which are clusters here themselves.
type collector struct{ service *Service }

// Describe sends nothing: which series there are depends on the clusters.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect reads every target. Series that an idle cluster would only show as
// zero are left out, but for those whose first count matters. Categories and
// localities are those that the newest config names.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	c.files(out)
	targets := c.service.targets
	rest := newSeries(OverflowCluster)
	overflow := false
	for _, t := range targets.all() {
		summary := t.channel.ClusterSummary(t.cluster)
		if !t.ownSeries {
			overflow = true
			rest.held(t, summary)
			continue
		}
		s := newSeries(t.cluster)
		s.counts(t.counts)
		s.held(t, summary)
		s.own(t, summary)
		s.emit(out)
	}
	if overflow {
		rest.counts(&targets.rest)
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
	out <- filesFamily.metric(float64(good), "good")
	out <- filesFamily.metric(float64(bad), "bad")
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

// counts adds what happened.
func (s *series) counts(c *counts) {
	s.add(picksFamily, 0, "", string(resultOK))
	for r, n := range c.picks.read() {
		s.add(picksFamily, float64(n), "", string(r))
	}
	for r, n := range c.switches.read() {
		s.add(switchesFamily, float64(n), "", string(r))
	}
	for r, n := range c.connects.read() {
		s.add(connectsFamily, float64(n), "", r)
	}
	for r, n := range c.losses.read() {
		s.add(lossesFamily, float64(n), "", r)
	}
	for o, n := range c.ended.read() {
		s.add(leasesEndedFamily, float64(n), string(o))
	}
}

// held adds how much there is now.
func (s *series) held(t *target, summary policy.Summary) {
	s.add(leasesFamily, float64(t.leases.Load()))
	if l, ok := t.own(); ok {
		b := l.breaker()
		s.add(inFlightFamily, float64(b.InFlight))
		s.add(maxRequestsFamily, float64(b.MaxRequests))
	}
	if t.clusterConfig().Err == nil {
		s.endpoints(t, summary)
	}
}

// own adds what cannot be summed over clusters: what is no number of things, and
// counts under names that clusters choose or that go with them.
func (s *series) own(t *target, summary policy.Summary) {
	for _, state := range []connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure} {
		s.add(stateFamily, flag(state == summary.State), "", stateLabels[state])
	}
	s.add(priorityFamily, float64(summary.Priority), "")
	if len(summary.Priorities) > 1 { // so that the first failover is a rise from zero
		s.add(switchesFamily, 0, "", string(policy.SwitchFailure))
		s.add(switchesFamily, 0, "", string(policy.SwitchInitTimeout))
	}
	for at, n := range *t.places.Load() {
		if n := n.Load(); n > 0 {
			s.add(localityPicksFamily, float64(n), "", strconv.Itoa(at.priority), at.locality.String())
		}
	}
	s.add(updatedFamily, float64(updated(t.clusterConfig()).UnixMilli())/1000)
	s.add(staleFamily, 0)
	if l, ok := t.own(); ok {
		b := l.breaker()
		s.add(openFamily, flag(b.Open))
		s.add(rejectionsFamily, float64(b.Rejected))
		s.drops(l.drops())
	}
}

// drops adds the drop categories. One that is there twice drops twice, each time
// of what is left, and is counted once.
func (s *series) drops(all []DropState) {
	ratios := make(map[string]float64, len(all))
	for _, d := range all {
		ratio, twice := ratios[d.Category]
		if !twice {
			s.add(dropsFamily, float64(d.Dropped), d.Category)
		}
		ratios[d.Category] = ratio + (1-ratio)*float64(d.PerMillion)/1e6
	}
	for category, ratio := range ratios {
		s.add(dropRatioFamily, ratio, category)
	}
}

// endpoints adds the endpoints by priority and state. How many are READY in the
// priority in use is always there.
func (s *series) endpoints(t *target, summary policy.Summary) {
	inUse := max(summary.Priority, 0)
	count := func(priority int, state string, n int) {
		if n > 0 || state == "ready" && priority == inUse {
			s.add(endpointsFamily, float64(n), "", strconv.Itoa(priority), state)
		}
	}
	for p, c := range summary.Priorities {
		count(p, "ready", c.Ready)
		count(p, "connecting", c.Connecting)
		count(p, "idle", c.Idle)
		count(p, "transient_failure", c.TransientFailure)
		count(p, "ejected", c.Ejected)
	}
	for priority, l := range localities(t.config.Load(), t.cluster) {
		for _, e := range l.Endpoints {
			if !e.Usable() {
				count(priority, "unhealthy", 1)
			}
		}
	}
}
