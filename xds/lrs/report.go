package lrs

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	lrsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// maxMessageBytes limits one message of a report: the default limit of gRPC servers is
// 4 MiB.
const maxMessageBytes = 2 << 20

// sendLoads sends one report in one or more messages, and acknowledges what was sent.
func (st *stream) sendLoads() error {
	batch := st.acquire()
	message := new(lrsv3.LoadStatsRequest)
	size := 0
	var included []*cluster // in message
	flush := func(now time.Time) error {
		if err := st.send(message); err != nil {
			return err
		}
		for _, c := range included {
			c.counters.Acknowledge()
			c.since = now
		}
		message, size, included = new(lrsv3.LoadStatsRequest), 0, nil
		return nil
	}
	now := time.Now()
	var err error
	for _, c := range batch {
		load := c.counters.Read()
		if !load.Empty() {
			stats := clusterStats(c.key, load, now.Sub(c.since))
			n := proto.Size(stats)
			if size > 0 && size+n > maxMessageBytes {
				if err = flush(now); err != nil {
					break
				}
			}
			message.ClusterStats = append(message.ClusterStats, stats)
			size += n
		}
		included = append(included, c)
	}
	if err == nil {
		err = flush(now)
	}
	st.release(batch, err == nil)
	return err
}

// acquire marks the clusters that the server requested as busy, and returns them.
func (st *stream) acquire() []*cluster {
	st.reporter.mu.Lock()
	defer st.reporter.mu.Unlock()
	var batch []*cluster
	for c := range st.clusters {
		if !c.busy && st.requested.has(c.key.Cluster) {
			c.busy = true
			batch = append(batch, c)
		}
	}
	slices.SortFunc(batch, func(a, b *cluster) int {
		return cmp.Or(cmp.Compare(a.key.Cluster, b.key.Cluster), cmp.Compare(a.key.EDSServiceName, b.key.EDSServiceName))
	})
	return batch
}

// release ends acquire. It removes stopped clusters that have no more load, or that the
// server did not request.
func (st *stream) release(batch []*cluster, sent bool) {
	r := st.reporter
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range batch {
		c.busy = false
		r.removeIfDone(c)
	}
	if sent {
		st.status.LastReport = time.Now()
	}
	for c := range st.clusters {
		if c.stopped != 0 && !c.busy && !st.requested.has(c.key.Cluster) {
			r.remove(c)
		}
	}
}

// hasActive reports whether a cluster is not stopped.
func (st *stream) hasActive() bool {
	st.reporter.mu.Lock()
	defer st.reporter.mu.Unlock()
	for c := range st.clusters {
		if c.stopped == 0 {
			return true
		}
	}
	return false
}

// hasLoad reports whether a cluster has load.
func (st *stream) hasLoad() bool {
	st.reporter.mu.Lock()
	defer st.reporter.mu.Unlock()
	for c := range st.clusters {
		if !c.busy && !c.counters.Read().Empty() {
			return true
		}
	}
	return false
}

// clusterStats returns the load of a cluster over a duration.
func clusterStats(key Key, load resource.Load, over time.Duration) *endpointv3.ClusterStats {
	stats := &endpointv3.ClusterStats{
		ClusterName:          key.Cluster,
		ClusterServiceName:   key.EDSServiceName,
		TotalDroppedRequests: load.Dropped,
		LoadReportInterval:   durationpb.New(over),
	}
	for _, category := range slices.Sorted(maps.Keys(load.Drops)) {
		stats.DroppedRequests = append(stats.DroppedRequests, &endpointv3.ClusterStats_DroppedRequests{
			Category: category, DroppedCount: load.Drops[category],
		})
	}
	for i := range load.Localities {
		stats.UpstreamLocalityStats = append(stats.UpstreamLocalityStats, localityStats(&load.Localities[i]))
	}
	return stats
}

func localityStats(l *resource.LocalityLoad) *endpointv3.UpstreamLocalityStats {
	stats := &endpointv3.UpstreamLocalityStats{
		Locality:                &corev3.Locality{Region: l.Locality.Region, Zone: l.Locality.Zone, SubZone: l.Locality.SubZone},
		TotalIssuedRequests:     l.Issued,
		TotalSuccessfulRequests: l.Succeeded,
		TotalErrorRequests:      l.Failed,
		TotalRequestsInProgress: l.InProgress,
	}
	for _, name := range slices.Sorted(maps.Keys(l.Metrics)) {
		m := l.Metrics[name]
		unnamed := &endpointv3.UnnamedEndpointLoadMetricStats{NumRequestsFinishedWithMetric: m.Requests, TotalMetricValue: m.Total}
		switch name {
		case resource.MetricCPUUtilization:
			stats.CpuUtilization = unnamed
		case resource.MetricMemUtilization:
			stats.MemUtilization = unnamed
		case resource.MetricApplicationUtilization:
			stats.ApplicationUtilization = unnamed
		default:
			stats.LoadMetricStats = append(stats.LoadMetricStats, &endpointv3.EndpointLoadMetricStats{
				MetricName: name, NumRequestsFinishedWithMetric: m.Requests, TotalMetricValue: m.Total,
			})
		}
	}
	return stats
}
