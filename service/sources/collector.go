package sources

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lbd-dev/lbd/service/observe"
)

// The metrics of resource files, management servers and subscriptions.
var (
	filesFamily = observe.Gauge("lbd_resource_files",
		"Resource files by state: good, bad (the last good content stays in use), held (the change waits for the operator's decision).", "state")
	heldFamily = observe.Gauge("lbd_held_changes",
		"Changes of resource files that are held because they would take away usable endpoints, TLS or clusters. They wait for the operator's decision.")
	xdsConnectedFamily = observe.Gauge("lbd_xds_connected",
		"1 if the ADS stream to the management server is up, else 0. A server that no target uses or waits for has no series.", "server")
	xdsTargetsFamily = observe.Gauge("lbd_xds_targets",
		"Targets, including clusters on demand, by the management server that they use. Targets of a server that is not the first of its authority have fallen back.", "server")
	onDemandFamily = observe.Gauge("lbd_on_demand_clusters",
		"Clusters on demand by kind: known to a management server (limit --on-demand) or unknown (limit --on-demand-unknown).", "kind")
	onDemandRefusedFamily = observe.Counter("lbd_on_demand_refused_total",
		"Clusters that picks named and that were refused because a limit was reached (known, unknown) or evicted (an unknown name that a newer one replaced).", "kind")
	xdsResourcesFamily = observe.Gauge("lbd_xds_resources",
		"Resources requested from management servers, by state: requested, acked, nacked, does_not_exist, received_error, timeout; with the suffix _but_cached if the last good version is in use.", "type", "state")
	xdsUpdatesFamily = observe.Counter("lbd_xds_updates_total",
		"Resources received from management servers by result: valid, invalid, unchanged.", "server", "type", "result")
)

func (f *resourceFiles) collect(out chan<- prometheus.Metric) {
	if f.inUse.Load() == nil {
		return
	}
	counts := map[FileCondition]int{FileGood: 0, FileBad: 0, FileHeld: 0}
	state := f.Files()
	for _, f := range state.Files {
		counts[f.State]++
	}
	for condition, n := range counts {
		out <- filesFamily.Metric(float64(n), string(condition))
	}
	out <- heldFamily.Metric(float64(len(state.Held)))
}

func (s *servers) collect(out chan<- prometheus.Metric) {
	if s.client == nil {
		return
	}
	status := withCached(s.Ledger.Hosted(), s.recent.get(s.client.Status, scrapePatience))
	// A server that several authorities have is in the status several times.
	connected, targets := make(map[string]bool), make(map[string]int)
	for _, server := range status.Servers {
		targets[server.URI] += server.Targets
		if server.Targets+server.Waiting > 0 {
			connected[server.URI] = server.Connected
		}
	}
	for server, n := range targets {
		out <- xdsTargetsFamily.Metric(float64(n), server)
	}
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
	demand := s.demand.state()
	out <- onDemandFamily.Metric(float64(demand.Known), "known")
	out <- onDemandFamily.Metric(float64(demand.Unknown), "unknown")
	out <- onDemandRefusedFamily.Metric(float64(s.demand.refusedKnown.Load()), "known")
	out <- onDemandRefusedFamily.Metric(float64(s.demand.refusedUnknown.Load()), "unknown")
	out <- onDemandRefusedFamily.Metric(float64(s.demand.evicted.Load()), "evicted")
}
