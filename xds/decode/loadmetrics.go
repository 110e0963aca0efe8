package decode

import (
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/lbd-dev/lbd/xds/resource"
)

// allNamedMetrics takes every named metric.
const allNamedMetrics = resource.NamedMetricPrefix + "*"

// loadMetrics judges lrs_report_endpoint_metrics. It is nil where no metric is
// to be reported.
func (v clusterValidator) loadMetrics(m *clusterv3.Cluster) *resource.LoadMetrics {
	const field = "lrs_report_endpoint_metrics"
	var out resource.LoadMetrics
	for _, name := range m.GetLrsReportEndpointMetrics() {
		switch name {
		case resource.MetricCPUUtilization:
			out.CPUUtilization = true
		case resource.MetricMemUtilization:
			out.MemUtilization = true
		case resource.MetricApplicationUtilization:
			out.ApplicationUtilization = true
		case allNamedMetrics:
			out.AllNamed = true
		default:
			named, ok := strings.CutPrefix(name, resource.NamedMetricPrefix)
			if !ok || named == "" {
				v.warn(field, "has %q, which is not applied: known are %s, %s, %s, %s and %sNAME", name,
					resource.MetricCPUUtilization, resource.MetricMemUtilization, resource.MetricApplicationUtilization, allNamedMetrics, resource.NamedMetricPrefix)
				continue
			}
			out.Named = append(out.Named, named)
		}
	}
	slices.Sort(out.Named)
	out.Named = slices.Compact(out.Named)
	if out.AllNamed {
		out.Named = nil
	}
	if !out.CPUUtilization && !out.MemUtilization && !out.ApplicationUtilization && !out.AllNamed && out.Named == nil {
		return nil
	}
	return &out
}
