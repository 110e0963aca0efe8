package sources

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/observe"
)

// The series of resource files, of management servers, and of what is asked of them.
var (
	filesFamily = observe.Gauge("lbd_resource_files",
		"Resource files by state: good, bad (the last good content stays in use), held (the change waits for the operator's decision).", "state")
	heldFamily = observe.Gauge("lbd_held_changes",
		"Changes of resource files that are not in use, because they would take away what works. They wait for the operator's decision.")
	xdsConnectedFamily = observe.Gauge("lbd_xds_connected",
		"Does the management server speak that is in use? 0 or 1; one that a fall-back would turn to, and any of which nothing is wanted, has no series.", "server")
	xdsTargetsFamily = observe.Gauge("lbd_xds_targets",
		"Targets, clusters on demand included, by the management server that they use: those of another one than the first of their authority have fallen back.", "server")
	onDemandFamily = observe.Gauge("lbd_on_demand_clusters",
		"Clusters on demand by kind: known to a management server (limit --on-demand), or unknown (limit --on-demand-unknown).", "kind")
	onDemandRefusedFamily = observe.Counter("lbd_on_demand_refused_total",
		"Names of picks that got no place, or lost it, by kind: known, unknown, evicted (an unknown name that a newer one replaced).", "kind")
	xdsResourcesFamily = observe.Gauge("lbd_xds_resources",
		"Resources requested from management servers, by state: requested, acked, nacked, does_not_exist, received_error, timeout; with the suffix _but_cached if the last good version is in use.", "type", "state")
	xdsUpdatesFamily = observe.Counter("lbd_xds_updates_total",
		"What became of what management servers sent? By result: valid, invalid, unchanged.", "server", "type", "result")
)

// sourcesCollector emits the series of sources.
type sourcesCollector struct{ sources *Sources }

// Describe sends nothing: which series there are depends on the sources.
func (c *sourcesCollector) Describe(chan<- *prometheus.Desc) {}

// Collect emits how sources are now.
func (c *sourcesCollector) Collect(out chan<- prometheus.Metric) {
	c.files(out)
	c.xds(out)
}

// files emits how the resource directory is, where there is one.
func (c *sourcesCollector) files(out chan<- prometheus.Metric) {
	if c.sources.files.Load() == nil {
		return
	}
	counts := map[FileCondition]int{FileGood: 0, FileBad: 0, FileHeld: 0}
	state := c.sources.Files()
	for _, f := range state.Files {
		counts[f.State]++
	}
	for condition, n := range counts {
		out <- filesFamily.Metric(float64(n), string(condition))
	}
	out <- heldFamily.Metric(float64(len(state.Held)))
}

// xds emits how lbd stands with its management servers, where it has any.
func (c *sourcesCollector) xds(out chan<- prometheus.Metric) {
	if c.sources.followed == nil {
		return
	}
	f := c.sources.followed
	status := withCached(c.sources.targets.Hosted(), f.recent.get(f.server.Status, scrapePatience))
	// In use are those that a target uses or waits for. A server that several
	// authorities have is there several times.
	connected, targets := make(map[string]bool), make(map[string]int)
	for _, s := range status.Servers {
		targets[s.URI] += s.Targets
		if s.Targets+s.Waiting > 0 {
			connected[s.URI] = s.Connected
		}
	}
	for server, n := range targets {
		out <- xdsTargetsFamily.Metric(float64(n), server)
	}
	c.onDemand(out)
	for server, is := range connected {
		out <- xdsConnectedFamily.Metric(observe.Flag(is), server)
	}
	type kind struct{ of, state string }
	resources := make(map[kind]int)
	for _, of := range XDSTypes {
		for _, state := range XDSStates {
			resources[kind{of, state}] = 0
		}
	}
	for _, r := range status.Resources {
		resources[kind{string(r.Key.Type), string(r.State)}]++
	}
	for k, n := range resources {
		out <- xdsResourcesFamily.Metric(float64(n), k.of, k.state)
	}
	for k, n := range status.Updates {
		out <- xdsUpdatesFamily.Metric(float64(n), k.Server, string(k.Type), string(k.Result))
	}
}

// onDemand emits how full the places of clusters on demand are.
func (c *sourcesCollector) onDemand(out chan<- prometheus.Metric) {
	d := &c.sources.onDemand
	state := d.state()
	out <- onDemandFamily.Metric(float64(state.Known), "known")
	out <- onDemandFamily.Metric(float64(state.Unknown), "unknown")
	out <- onDemandRefusedFamily.Metric(float64(d.refusedKnown.Load()), "known")
	out <- onDemandRefusedFamily.Metric(float64(d.refusedUnknown.Load()), "unknown")
	out <- onDemandRefusedFamily.Metric(float64(d.evicted.Load()), "evicted")
}
