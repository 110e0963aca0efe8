package lrs

import (
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

// maxMessageBytes limits one message: the default limit of gRPC servers is 4 MiB.
const maxMessageBytes = 2 << 20

// sendLoads sends one report, and acknowledges what was sent.
func (st *stream) sendLoads() error {
	batch := st.reporter.acquire(st.server, st.requested)
	err := st.sendBatch(batch)
	st.reporter.release(st.server, st.requested, batch)
	if err == nil {
		st.updateStatus(func(s *ServerStatus) { s.LastReport = time.Now() })
	}
	return err
}

func (st *stream) sendBatch(batch []report) error {
	now := time.Now()
	message, size, first := new(lrsv3.LoadStatsRequest), 0, 0 // first is that of message
	flush := func(end int) error {
		if err := st.send(message); err != nil {
			return err
		}
		for i := first; i < end; i++ {
			batch[i].counters.Acknowledge()
			batch[i].since = now
		}
		message, size, first = new(lrsv3.LoadStatsRequest), 0, end
		return nil
	}
	for i, r := range batch {
		load := r.counters.Read()
		if load.Empty() {
			continue
		}
		stats := clusterStats(r.key, load, now.Sub(r.since))
		n := proto.Size(stats)
		if size > 0 && size+n > maxMessageBytes {
			if err := flush(i); err != nil {
				return err
			}
		}
		message.ClusterStats = append(message.ClusterStats, stats)
		size += n
	}
	return flush(len(batch))
}

func clusterStats(key resource.ServiceKey, load resource.Load, over time.Duration) *endpointv3.ClusterStats {
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
