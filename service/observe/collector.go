package observe

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/overload"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/timeline"
	"github.com/lbd-dev/lbd/xds/resource"
)

// The series of the daemon, and of a cluster.
var (
	overloadFamily = Gauge("lbd_overload",
		"1 if lbd itself lacks the resource: descriptors, memory, local ports, or room in a budget. Endpoints keep their states meanwhile.", "resource")
	turnsFamily = Gauge("lbd_bulk_turns",
		"Limit of bulk work that runs at a time.")
	bulkRunningFamily = Gauge("lbd_bulk_running",
		"Bulk work that runs now.", "work")
	bulkWaitingFamily = Gauge("lbd_bulk_waiting",
		"Bulk work that waits for its turn.", "work")
	bulkBegunFamily = Counter("lbd_bulk_begun_total",
		"Bulk work that has begun.", "work")
	bulkWaitedFamily = Counter("lbd_bulk_waited_seconds_total",
		"Time for which bulk work has waited for its turn, pauses included. It grows by many seconds a second if lbd has to decode or render more than it can.", "work")
	conditionsFamily = Gauge("lbd_conditions",
		"Daemon-wide problems now, by kind, as GET /v1/daemon lists them.", "kind")
	timelineFamily = Gauge("lbd_history_bytes",
		"Memory that the history of all clusters uses, of at most --history-bytes.")
	timelineEvictedFamily = Counter("lbd_history_evicted_bytes_total",
		"History that was evicted before its time because --history-bytes was reached.")
	picksFamily = Counter("lbd_picks_total",
		"Picks by result: ok, or the code of the refusal. Each pick counts once.", "cluster", "target", "result")
	localityPicksFamily = Counter("lbd_locality_picks_total",
		"Successful picks by priority and locality.", "cluster", "target", "priority", "locality")
	dropsFamily = Counter("lbd_drops_total",
		"Picks that a drop category dropped.", "cluster", "category")
	dropRatioFamily = Gauge("lbd_drop_ratio",
		"Ratio of picks that the drop category is configured to drop, 0 to 1.", "cluster", "category")
	judgedFamily = Counter("lbd_judged_picks_total",
		"Picks that reached the drop categories, by any target or aggregate, including those that were dropped.", "cluster")
	rejectionsFamily = Counter("lbd_circuit_breaker_rejections_total",
		"Picks that the circuit breaker refused.", "cluster")
	inFlightFamily = Gauge("lbd_circuit_breaker_in_flight",
		"Requests in flight, as the circuit breaker counts them.", "cluster")
	maxRequestsFamily = Gauge("lbd_circuit_breaker_max_requests",
		"Limit of the circuit breaker on requests in flight.", "cluster")
	openFamily = Gauge("lbd_circuit_breaker_open",
		"1 if the circuit breaker is at its limit and refuses picks, else 0.", "cluster")
	fleetLimitFamily = Gauge("lbd_fleet_limit",
		"Limit on requests in flight of all daemons of the store together, of a cluster with limit_scope fleet: the smallest that any of them knows.", "cluster")
	fleetShareFamily = Gauge("lbd_fleet_share",
		"Requests that this daemon may have in flight, of lbd_fleet_limit. The sum over all daemons does not exceed the limit.", "cluster")
	fleetDemandFamily = Gauge("lbd_fleet_demand",
		"Requests that this daemon would like to have in flight, of lbd_fleet_limit: the most that were wanted at once within the last second. Above lbd_fleet_share, picks are refused.", "cluster")
	leasesFamily = Gauge("lbd_leases_active",
		"Leases that are held now.", "cluster")
	leasesEndedFamily = Counter("lbd_leases_finished_total",
		"Leases that ended, by outcome: success, error, cancelled, unreachable, expired. Many expired leases mean that callers do not end their leases.", "cluster", "outcome")
	reportedFamily = Counter("lbd_reported_requests_total",
		"Requests without leases that callers have reported, by outcome: success, error, cancelled.", "cluster", "outcome")
	reportedSecondsFamily = Counter("lbd_reported_request_seconds_total",
		"Sum of the durations of the reported requests.", "cluster")
	reportedConnectsFamily = Counter("lbd_reported_connect_failures_total",
		"Connects to endpoints that failed, as callers have reported. A rise without lbd_disconnects_total means that callers do not reach endpoints that lbd reaches.", "cluster")
	endpointsFamily = Gauge("lbd_endpoints",
		"Endpoints by priority and state.", "cluster", "target", "priority", "state")
	stateFamily = Gauge("lbd_cluster_state",
		"1 for the current connectivity state of the cluster, 0 for the other states. All are 0 while the cluster is warming.", "cluster", "target", "state")
	warmingFamily = Gauge("lbd_clusters_warming",
		"Clusters whose balancer trees are yet to be built, in the background or by their first pick.")
	priorityFamily = Gauge("lbd_cluster_priority",
		"Priority in use, -1 if none is.", "cluster", "target")
	switchesFamily = Counter("lbd_priority_switches_total",
		"Changes of the priority in use, by reason: init_timeout, failure, recovered, update.", "cluster", "target", "reason")
	ejectionsFamily = Counter("lbd_ejections_total",
		"Outliers found. enforced=\"false\": not ejected because of max_ejection_percent or the enforcement percentage. A rise means that requests to some endpoints fail more than to others.", "cluster", "enforced")
	connectsFamily = Counter("lbd_connect_attempts_total",
		"Connection attempts by result: ok, error.", "cluster", "target", "result")
	lossesFamily = Counter("lbd_disconnects_total",
		"Connections that were lost, by reason.", "cluster", "target", "reason")
	updatedFamily = Gauge("lbd_cluster_updated_timestamp_seconds",
		"Time of the last change of the cluster's resources, in seconds since the Unix epoch.", "cluster")
	staleFamily = Gauge("lbd_cluster_stale",
		"1 if a management server that provides resources of the cluster is unreachable, else 0.", "cluster")
)

// gather adds the series of the daemon, and those of every cluster from the records of
// the ledger. Series that are zero are left out, unless a rate needs their first increase.
//
// An idle cluster whose priority in use is READY has 15 series; 1 more if it has drop
// categories, and 2 for each; 4 if it has several priorities, and 1 for each but the
// first: 25 with two of each. Picks add one for each result but ok, and one for each
// locality that was picked; leases one for each outcome; failures one for each state of
// endpoints of a priority, and each reason of lost connections.
//
// Series with a target label belong to one cluster in one target. The cluster is empty
// for picks for which the target's routes chose none. Other series exist once for each
// cluster. An AGGREGATE has no series of circuit breakers and drops: its leaves have
// them, so that sums count nothing twice.
func (s *State) gather(g *gathering, h *timeline.Store) {
	s.gatherDaemon(g, h)
	o := &collection{out: g, rest: series{cluster: ledger.OverflowCluster}, emitted: make(map[*ledger.Totals]bool)}
	var members []*ledger.Cluster
	for _, t := range s.ledger.Hosted().Sorted() {
		if t.Unrouted != nil {
			o.unrouted(t.Unrouted)
		}
		for _, m := range t.View().Sorted() {
			if m.Known() { // a name that only picks have makes no series
				members = append(members, m)
			}
		}
	}
	stale := make(map[*ledger.Totals]bool)
	unbuilt := 0
	for _, m := range members {
		if m.Target.Channel.Warming() {
			unbuilt++
		}
		stale[m.Totals] = stale[m.Totals] || m.Stale()
	}
	g.add(warmingFamily, float64(unbuilt))
	for _, m := range members {
		o.inTarget(m)
		o.once(m.Totals, m.ClusterConfig(), stale[m.Totals], m.Own)
	}
	for _, m := range members {
		for _, l := range m.Leaves { // of leaves that no target has on its own
			o.once(l.Totals, l.ClusterConfig, m.Stale(), func() (ledger.Leaf, bool) { return l, true })
		}
	}
	if o.overflow {
		o.rest.add(picksFamily, 0, "", string(ledger.OK))
		o.rest.counted(&s.ledger.Rest, "")
		o.rest.ended(&s.ledger.RestEnds)
		o.rest.emit(g)
	}
}

// collection is one scrape.
type collection struct {
	out      *gathering
	own      series // of the cluster that is gathered now
	rest     series // of all clusters without series of their own
	overflow bool   // there are such clusters
	emitted  map[*ledger.Totals]bool
}

// of returns the series of a cluster, until they are emitted.
func (o *collection) of(cluster string) *series {
	o.own.cluster = cluster
	return &o.own
}

// unrouted emits the picks of a target for which no cluster was chosen, if there are
// any.
func (o *collection) unrouted(a *ledger.Record) {
	if !a.OwnSeries {
		o.overflow = true
		return
	}
	s := o.of("")
	addTally(s, picksFamily, &a.Picks, a.Target.Label)
	s.emit(o.out)
}

func (o *collection) inTarget(m *ledger.Cluster) {
	summary := m.Target.Channel.ClusterSummary(m.Name)
	if !m.OwnSeries {
		o.overflow = true
		o.rest.endpoints(m, summary, "")
		return
	}
	s := o.of(m.Name)
	s.add(picksFamily, float64(m.Succeeded()), m.Target.Label, string(ledger.OK))
	s.counted(m.Counts, m.Target.Label)
	s.endpoints(m, summary, m.Target.Label)
	s.inTree(m, summary)
	s.emit(o.out)
}

// once emits the series of a cluster for all its targets, in the first call for it. own
// returns the cluster as a leaf, if it is one.
func (o *collection) once(c *ledger.Totals, cc *resource.ClusterConfig, stale bool, own func() (ledger.Leaf, bool)) {
	if o.emitted[c] {
		return
	}
	o.emitted[c] = true
	l, isLeaf := own()
	if !c.OwnSeries {
		o.overflow = true
		o.rest.held(c, l, isLeaf)
		return
	}
	s := o.of(c.Name)
	s.ended(c.Ends)
	if cc != nil && cc.Cluster != nil && cc.Cluster.OutlierDetection != nil { // the first increase is from zero
		s.add(ejectionsFamily, 0, "true")
		s.add(ejectionsFamily, 0, "false")
	}
	s.held(c, l, isLeaf)
	if at := ledger.Updated(cc); !at.IsZero() {
		s.add(updatedFamily, float64(at.UnixMilli())/1000)
	}
	s.add(staleFamily, Flag(stale))
	if isLeaf {
		b := l.Breaker()
		s.add(openFamily, Flag(b.Open))
		s.add(rejectionsFamily, float64(b.Rejected))
		s.drops(l)
	}
	s.emit(o.out)
}

func (s *State) gatherDaemon(g *gathering, h *timeline.Store) {
	counts := make(map[ConditionKind]int, len(ConditionKinds))
	for _, condition := range s.allConditions() {
		counts[condition.Kind]++
	}
	for _, kind := range ConditionKinds {
		g.add(conditionsFamily, float64(counts[kind]), string(kind))
	}
	if h != nil {
		usage := h.Usage()
		g.add(timelineFamily, float64(usage.Bytes))
		g.add(timelineEvictedFamily, float64(usage.Evicted))
	}
	lacking := make(map[overload.Resource]bool)
	for _, st := range s.options.Overload.Current() {
		lacking[st.Resource] = true
	}
	for _, r := range overload.Resources {
		g.add(overloadFamily, Flag(lacking[r]), string(r))
	}
	g.add(turnsFamily, float64(s.options.Turns.Len()))
	for _, work := range overload.Works {
		stats := s.options.Turns.Stats(work)
		g.add(bulkRunningFamily, float64(stats.Running), work.String())
		g.add(bulkWaitingFamily, float64(stats.Waiting), work.String())
		g.add(bulkBegunFamily, float64(stats.Begun), work.String())
		g.add(bulkWaitedFamily, stats.Waited.Seconds(), work.String())
	}
}

// Flag returns 1 for true, and 0 for false.
func Flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// counted adds the counts of one target.
func (s *series) counted(c *ledger.Counts, target string) {
	addTally(s, picksFamily, &c.Picks, target)
	addTally(s, switchesFamily, &c.Switches, target)
	addTally(s, connectsFamily, &c.Connects, target)
	addTally(s, lossesFamily, &c.Losses, target)
}

func addTally[K ~string](s *series, f *Family, t *ledger.Tally[K], target string) {
	for k, n := range t.All() {
		s.add(f, float64(n), target, string(k))
	}
}

func (s *series) ended(e *ledger.Ends) {
	for o, n := range e.Outcomes.All() {
		s.add(leasesEndedFamily, float64(n), string(o))
	}
	reported := false
	for o, n := range e.Reported.Outcomes.All() {
		s.add(reportedFamily, float64(n), string(o))
		reported = true
	}
	if reported {
		s.add(reportedSecondsFamily, e.Reported.Latency().Seconds())
	}
	if n := e.Reported.ConnectFailures(); n > 0 {
		s.add(reportedConnectsFamily, float64(n))
	}
	for enforced, n := range e.Ejections.All() {
		s.add(ejectionsFamily, float64(n), strconv.FormatBool(enforced))
	}
}

func (s *series) held(c *ledger.Totals, l ledger.Leaf, isLeaf bool) {
	s.add(leasesFamily, float64(c.Leases.Picked()))
	if isLeaf {
		b := l.Breaker()
		s.add(inFlightFamily, float64(b.InFlight))
		s.add(maxRequestsFamily, float64(b.MaxRequests))
		if f, ok := l.Fleet(); ok {
			s.add(fleetLimitFamily, float64(f.Limit))
			s.add(fleetShareFamily, float64(f.Share))
			s.add(fleetDemandFamily, float64(f.Demand))
		}
	}
}

// inTree adds the series that cannot be summed over clusters.
func (s *series) inTree(m *ledger.Cluster, summary policy.Summary) {
	target := m.Target.Label
	built := !m.Target.Channel.Warming()
	for _, state := range []connectivity.State{connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure} {
		s.add(stateFamily, Flag(built && state == summary.State), target, strings.ToLower(state.String()))
	}
	s.add(priorityFamily, float64(summary.Priority), target)
	if len(summary.Priorities) > 1 { // the first increase is from zero
		for _, reason := range policy.SwitchReasons {
			s.add(switchesFamily, 0, target, string(reason))
		}
	}
	m.Places.Each(func(priority int, l resource.Locality, n uint64) {
		if n > 0 {
			s.add(localityPicksFamily, float64(n), target, strconv.Itoa(priority), l.String())
		}
	})
}

// drops adds the drop categories. A category that is listed twice drops twice, the second
// time from the remaining picks, and has one series.
func (s *series) drops(l ledger.Leaf) {
	all := dropStates(l)
	if len(all) > 0 {
		s.add(judgedFamily, float64(l.Counters.Judged()))
	}
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

// endpoints adds the endpoints by priority and state. READY endpoints of the priority in
// use always have a series.
func (s *series) endpoints(m *ledger.Cluster, summary policy.Summary, target string) {
	if m.ClusterConfig().Err != nil {
		return
	}
	inUse := max(summary.Priority, 0)
	count := func(priority int, state string, n int) {
		if n > 0 || state == "ready" && priority == inUse {
			s.add(endpointsFamily, float64(n), target, strconv.Itoa(priority), state)
		}
	}
	for p, c := range summary.Priorities {
		count(p, "ready", c.Ready)
		count(p, "connecting", c.Connecting)
		count(p, "idle", c.Idle)
		count(p, "transient_failure", c.TransientFailure)
		count(p, "ejected", c.Ejected)
	}
	for priority, l := range m.Localities() {
		for _, e := range l.Endpoints {
			if !e.Usable() {
				count(priority, "unhealthy", 1)
			}
		}
	}
}
