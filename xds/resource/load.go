package resource

// LoadMetrics says which of the metrics that upstreams report (ORCA) are part of
// load reports: a Cluster's lrs_report_endpoint_metrics (gRFC A85).
type LoadMetrics struct {
	CPUUtilization         bool
	MemUtilization         bool
	ApplicationUtilization bool
	// AllNamed takes every named metric, and Named these, in order; one of the two.
	AllNamed bool
	Named    []string
}

// The names that lrs_report_endpoint_metrics and load reports have for metrics.
const (
	MetricCPUUtilization         = "cpu_utilization"
	MetricMemUtilization         = "mem_utilization"
	MetricApplicationUtilization = "application_utilization"
	// NamedMetricPrefix begins the names of all others.
	NamedMetricPrefix = "named_metrics."
)

// Load is what the requests of a cluster have come to over a time
// (envoy.config.endpoint.v3.ClusterStats).
type Load struct {
	// Dropped counts all requests that were refused on purpose: those of Drops,
	// and those that the circuit breaker refused.
	Dropped uint64
	// Drops counts by drop category. It is nil where there are none.
	Drops map[string]uint64
	// Localities are those with load, in no order.
	Localities []LocalityLoad
}

// Empty reports whether there is nothing to report: no drop, and no locality that
// requests went to or are in progress in.
func (l Load) Empty() bool { return l.Dropped == 0 && len(l.Localities) == 0 }

// LocalityLoad is what the requests to one locality have come to over a time
// (envoy.config.endpoint.v3.UpstreamLocalityStats).
type LocalityLoad struct {
	Locality Locality
	// Issued are the requests that were sent; Succeeded and Failed those that
	// ended, whenever they were sent.
	Issued, Succeeded, Failed uint64
	// InProgress are the requests that have not ended at the end of the time.
	InProgress uint64
	// Metrics are what upstreams reported, by the metric's name as
	// lrs_report_endpoint_metrics has it. It is nil where there is none.
	Metrics map[string]MetricLoad
}

// MetricLoad is what one metric has come to over a time.
type MetricLoad struct {
	// Requests are those that ended and bore the metric; Total is the sum of their
	// values.
	Requests uint64
	Total    float64
}
