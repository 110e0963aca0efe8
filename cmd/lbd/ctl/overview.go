package ctl

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// overview is what lbd ctl top shows: the clusters of a daemon, with the rates of their picks.
type overview struct {
	clusters map[string]*shownCluster
	// notice is why the clusters may be outdated; empty while the stream is open.
	notice string
	// resumed is true from the loss of the stream to the next update, which has the changes since then.
	resumed bool
}

// shownCluster is a cluster of an overview.
type shownCluster struct {
	clusterState
	rates rates
	// received is when the daemon sent the counts.
	received time.Time
	// why is why the cluster has a problem. It is of the state that explained identifies.
	why       string
	explained string
}

// rates are numbers per second.
type rates struct{ ok, failed, drops float64 }

const (
	// updateInterval is the time between two updates of a cluster whose counts change. After a longer
	// time without an update, the counts have changed within the last interval only.
	updateInterval = time.Second
	// maxUpdateInterval is the time after which a cluster without an update has no picks.
	maxUpdateInterval = 2500 * time.Millisecond
)

// handle applies an event of the stream of all clusters.
func (o *overview) handle(e event, now time.Time) error {
	var change struct {
		Clusters []clusterState `json:"clusters"`
		Removed  []string       `json:"removed"`
	}
	o.notice = ""
	if e.name != "resync" && e.name != "update" {
		return nil
	}
	if err := decode(e.data, &change); err != nil {
		return err
	}
	before := o.clusters
	if o.clusters = map[string]*shownCluster{}; e.name == "update" {
		maps.Copy(o.clusters, before)
	}
	for _, c := range change.Clusters {
		shown := &shownCluster{clusterState: c, received: now}
		if old := before[c.Name]; old != nil {
			shown.why, shown.explained = old.why, old.explained
			shown.rates = rateOf(old.clusterState, c, e.name == "update" && !o.resumed)
		}
		o.clusters[c.Name] = shown
	}
	for _, name := range change.Removed {
		delete(o.clusters, name)
	}
	o.resumed = false
	return nil
}

// interrupt marks the clusters as outdated.
func (o *overview) interrupt(notice string) { o.notice, o.resumed = notice, true }

// rateOf returns the rates between two states of a cluster; none if the daemon has restarted.
func rateOf(old, c clusterState, isUpdate bool) rates {
	since := c.Counts.Time.Sub(old.Counts.Time)
	if isUpdate && since > maxUpdateInterval {
		since = updateInterval
	}
	ok, failed := c.picks()
	oldOK, oldFailed := old.picks()
	drops, oldDrops := total(c.Counts.Drops), total(old.Counts.Drops)
	if since <= 0 || ok < oldOK || failed < oldFailed || drops < oldDrops {
		return rates{}
	}
	per := func(n uint64) float64 { return float64(n) / since.Seconds() }
	return rates{per(ok - oldOK), per(failed - oldFailed), per(drops - oldDrops)}
}

// current returns the rates at a time.
func (c *shownCluster) current(now time.Time) rates {
	if now.Sub(c.received) > maxUpdateInterval {
		return rates{}
	}
	return c.rates
}

// The severities of a cluster, worst last.
const (
	fine = iota
	degraded
	failingOver
	limited
	failing
)

// severity says how bad the state of a cluster is.
func (c clusterState) severity() int {
	switch {
	case c.State == "TRANSIENT_FAILURE" || c.Trouble != nil && (c.Breaker == nil || !c.Breaker.Open):
		return failing
	case c.Breaker != nil && c.Breaker.Open:
		return limited
	case c.PriorityInUse > 0 || c.State == "CONNECTING":
		return failingOver
	case c.Stale || c.State == "READY" && c.used().Ready < c.used().Total:
		return degraded
	default:
		return fine
	}
}

// used returns the counts of the endpoints that picks use.
func (c clusterState) used() endpointCounts {
	if c.EndpointsInUse != nil {
		return *c.EndpointsInUse
	}
	return c.Endpoints
}

// sorted returns the clusters, worst first: by severity, then failed picks, then picks, then name.
func (o *overview) sorted(now time.Time) []*shownCluster {
	return slices.SortedFunc(maps.Values(o.clusters), func(a, b *shownCluster) int {
		x, y := a.current(now), b.current(now)
		return cmp.Or(cmp.Compare(b.severity(), a.severity()), cmp.Compare(y.failed, x.failed),
			cmp.Compare(y.ok, x.ok), cmp.Compare(a.Name, b.Name))
	})
}

// identity identifies what the reason of a problem depends on.
func (c clusterState) identity() string {
	return fmt.Sprint(c.Generation, c.State, c.PriorityInUse, c.Endpoints)
}

// unexplained returns the first cluster of a number of lines whose problem has no current reason; nil if
// all have one.
func (o *overview) unexplained(now time.Time, lines int) *shownCluster {
	all := o.sorted(now)
	for _, c := range all[:min(max(0, lines), len(all))] {
		if c.severity() != fine && c.Trouble == nil && c.explained != c.identity() {
			return c
		}
	}
	return nil
}

// explain sets the reason of a problem from the state of the cluster with its priorities.
func (c *shownCluster) explain(state clusterState) {
	c.explained = c.identity()
	c.why = state.Error
	for _, p := range state.Priorities {
		if c.why != "" {
			return
		}
		// The first priority that should be in use and is not.
		if !p.InUse || c.PriorityInUse <= p.Priority {
			c.why = p.Why
		}
	}
}

// reason returns why a cluster has a problem.
func (c *shownCluster) reason() string {
	switch {
	case c.severity() == fine:
		return ""
	case c.Trouble != nil:
		return c.Trouble.String()
	case c.Breaker != nil && c.Breaker.Open && c.State != "TRANSIENT_FAILURE":
		return "the circuit breaker is open"
	case c.severity() == degraded && c.Stale:
		return "resources are outdated: the management server is unreachable"
	case c.severity() == degraded:
		return fmt.Sprintf("%d of %d endpoints are READY", c.used().Ready, c.used().Total)
	default:
		return c.why
	}
}

// lines returns the screen: a summary, and a table of clusters with a line below each problem that says
// why. It has the size of the terminal at most.
func (o *overview) lines(daemon string, now time.Time, width, height int, color bool) []string {
	t := newTable("NAME", "STATE", "PRIORITY", "READY", "PICKS/S", "SUCCESS", "DROPS/S", "BREAKER")
	var all rates
	var reasons []string
	problems := 0
	for _, c := range o.sorted(now) {
		r := c.current(now)
		all.ok, all.failed = all.ok+r.ok, all.failed+r.failed
		if c.severity() != fine {
			problems++
		}
		if len(t.rows) < height {
			t.add(c.Name, c.State, priority(c.PriorityInUse), c.Endpoints.String(), decimal(r.ok+r.failed),
				success(r), decimal(r.drops), c.Breaker.String())
			reasons = append(reasons, c.reason())
		}
	}
	status := cmp.Or(o.notice, now.Format("15:04:05"))
	lines := []string{
		cut(fmt.Sprintf("%s   %s", daemon, escape(status)), width),
		cut(fmt.Sprintf("clusters: %d   problems: %d   picks/s: %s   success: %s   q: quit", len(o.clusters), problems,
			decimal(all.ok+all.failed), success(all)), width),
		"",
	}
	rows := t.lines(color, width)
	lines = append(lines, rows[0])
	for i, row := range rows[1:] {
		lines = append(lines, row)
		if reasons[i] != "" {
			lines = append(lines, cut("  "+escape(reasons[i]), width))
		}
	}
	return lines[:min(len(lines), height)]
}

// success returns the share of picks that got an endpoint; "-" without picks.
func success(r rates) string {
	if r.ok+r.failed <= 0 {
		return "-"
	}
	return percent(r.ok / (r.ok + r.failed))
}
