package resource

// LoadMetrics is a Cluster's lrs_report_endpoint_metrics (gRFC A85): the metrics of upstreams
// (ORCA) that are part of load reports.
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

// Load counts the requests of a cluster during a period
// (envoy.config.endpoint.v3.ClusterStats).
type Load struct {
	// Dropped counts the requests of Drops, and those that the circuit breaker rejected.
	Dropped    uint64
	Drops      map[string]uint64 // by drop category; nil for none
	Localities []LocalityLoad    // those with load, in no order
}

// Empty reports whether there is nothing to report.
func (l Load) Empty() bool { return l.Dropped == 0 && len(l.Localities) == 0 }

// LocalityLoad counts the requests to one locality during a period
// (envoy.config.endpoint.v3.UpstreamLocalityStats).
type LocalityLoad struct {
	Locality Locality
	LoadCounts
	Metrics map[string]MetricLoad // by name in lrs_report_endpoint_metrics; nil for none
}

// LoadCounts are counts of requests.
type LoadCounts struct {
	// Issued counts requests that were sent; Succeeded and Failed count those that ended,
	// whenever they were sent.
	Issued, Succeeded, Failed uint64
	InProgress                uint64 // at the end of the period
}

// Since returns the difference to an earlier reading.
func (c LoadCounts) Since(before LoadCounts) LoadCounts {
	return LoadCounts{c.Issued - before.Issued, c.Succeeded - before.Succeeded, c.Failed - before.Failed, c.InProgress}
}

// MetricLoad sums up one metric during a period.
type MetricLoad struct {
	Requests uint64  // that ended with the metric
	Total    float64 // of their values
}
