package observe

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/lbd-dev/lbd/service/ledger"
)

// processFamilies are the metrics of the process that a caller with any scope may see, by name or
// by prefix (with "*"): none counts clusters, targets, resources or leases.
var processFamilies = []string{
	"go_*", "process_*", "lbd_http_*", "lbd_build_info", "lbd_overload", "lbd_watchers", "lbd_audit_records_total",
	"lbd_xds_connected", "lbd_pick_duration_seconds", "lbd_pick_wait_seconds", "lbd_endpoint_series_truncated",
}

// Within returns those metrics of g that a caller of a scope may see: the series of its clusters
// and targets, by their labels, and those of the process. The series of the clusters without
// series of their own are not among them.
func Within(s *ledger.Scope, g prometheus.Gatherer) prometheus.Gatherer {
	if s.All() {
		return g
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
			process := isProcessFamily(f.GetName())
			f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
				named, visible := labelsWithin(s, m.GetLabel())
				return !visible || !named && !process
			})
			return len(f.Metric) == 0
		}), err
	})
}

// labelsWithin reports whether labels name a cluster or target, and whether all that they name are
// in a scope.
func labelsWithin(s *ledger.Scope, labels []*dto.LabelPair) (named, visible bool) {
	visible = true
	for _, l := range labels {
		switch value := l.GetValue(); l.GetName() {
		case "cluster":
			named = named || value != ""
			visible = visible && s.Cluster(value) && value != ledger.OverflowCluster
		case "target":
			named = named || value != ""
			visible = visible && s.Target(value)
		}
	}
	return named, visible
}

func isProcessFamily(name string) bool {
	return slices.ContainsFunc(processFamilies, func(f string) bool {
		prefix, isPrefix := strings.CutSuffix(f, "*")
		return name == f || isPrefix && strings.HasPrefix(name, prefix)
	})
}
