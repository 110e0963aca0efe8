package service

import "github.com/prometheus/client_golang/prometheus"

// The series of management servers, and of what is asked of them.
var (
	xdsConnectedFamily = gauge("lbd_xds_connected",
		"Does the management server speak that is in use? 0 or 1; one that a fall-back would turn to, and any of which nothing is wanted, has no series.", "server")
	xdsTargetsFamily = gauge("lbd_xds_targets",
		"Targets, clusters on demand included, by the management server that they use: those of another one than the first of their authority have fallen back.", "server")
	onDemandFamily = gauge("lbd_on_demand_clusters",
		"Clusters on demand by kind: known to a management server (limit --on-demand), or unknown (limit --on-demand-unknown).", "kind")
	onDemandRefusedFamily = counter("lbd_on_demand_refused_total",
		"Names of picks that got no place, or lost it, by kind: known, unknown, evicted (an unknown name that a newer one replaced).", "kind")
	xdsResourcesFamily = gauge("lbd_xds_resources",
		"Resources requested from management servers, by state: requested, acked, nacked, does_not_exist, received_error, timeout; with the suffix _but_cached if the last good version is in use.", "type", "state")
	xdsUpdatesFamily = counter("lbd_xds_updates_total",
		"What became of what management servers sent? By result: valid, invalid, unchanged.", "server", "type", "result")
)

// xds emits how lbd stands with its management servers, where it has any.
func (c *collector) xds(out chan<- prometheus.Metric) {
	if c.service.followed == nil {
		return
	}
	status := c.service.serverStatus()
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
		out <- xdsTargetsFamily.metric(float64(n), server)
	}
	c.onDemand(out)
	for server, is := range connected {
		out <- xdsConnectedFamily.metric(flag(is), server)
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
		out <- xdsResourcesFamily.metric(float64(n), k.of, k.state)
	}
	for k, n := range status.Updates {
		out <- xdsUpdatesFamily.metric(float64(n), k.Server, string(k.Type), string(k.Result))
	}
}

// onDemand emits how full the places of clusters on demand are.
func (c *collector) onDemand(out chan<- prometheus.Metric) {
	d := &c.service.onDemand
	state := d.state()
	out <- onDemandFamily.metric(float64(state.Known), "known")
	out <- onDemandFamily.metric(float64(state.Unknown), "unknown")
	out <- onDemandRefusedFamily.metric(float64(d.refusedKnown.Load()), "known")
	out <- onDemandRefusedFamily.metric(float64(d.refusedUnknown.Load()), "unknown")
	out <- onDemandRefusedFamily.metric(float64(d.evicted.Load()), "evicted")
}
