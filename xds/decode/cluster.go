package decode

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/resource"
)

type clusterValidator struct{ *report }

func validateCluster(r *report, m *clusterv3.Cluster) *resource.Cluster {
	v := clusterValidator{r}
	c := &resource.Cluster{Name: m.GetName(), MaxRequests: resource.DefaultMaxRequests}
	v.discovery(m, c)
	c.Policy = policyValidator{r}.policyOf(m)
	c.LRSToSelf = v.lrs(m.GetLrsServer())
	c.LoadMetrics = v.loadMetrics(m.GetLrsReportEndpointMetrics())
	own := m.GetMetadata().GetFilterMetadata()["lbd"].GetFields()
	c.Connect = v.connect(own)
	c.MaxLeaseShare = v.maxLeaseShare(own)
	c.MaxBackoff = v.maxBackoff(own)
	c.FleetLimit = v.limitScope(own)
	c.OutlierDetection = v.outlierDetection(m.GetOutlierDetection(), c.Policy)
	v.thresholds(m.GetCircuitBreakers(), c)
	if len(m.GetTransportSocketMatches()) > 0 {
		v.reject("transport_socket_matches", "is not supported")
	} else if c.Type != resource.ClusterAggregate || !v.byHand {
		c.Security = tlsValidator{r}.cluster(m, c.Connect)
	}
	v.dependentFields(m, c)
	return c
}

// lrs validates lrs_server, and reports whether the cluster has one.
func (v clusterValidator) lrs(s *corev3.ConfigSource) bool {
	if s == nil {
		return false
	}
	v.apiVersions(s, "lrs_server")
	if s.GetSelf() == nil {
		v.reject("lrs_server", "is %s: it must be self", specifier(s))
	}
	return true
}

// allNamedMetrics selects every named metric.
const allNamedMetrics = resource.NamedMetricPrefix + "*"

// loadMetrics validates lrs_report_endpoint_metrics; it returns nil without a metric to report.
func (v clusterValidator) loadMetrics(names []string) *resource.LoadMetrics {
	var out resource.LoadMetrics
	known := map[string]*bool{
		resource.MetricCPUUtilization: &out.CPUUtilization, resource.MetricMemUtilization: &out.MemUtilization,
		resource.MetricApplicationUtilization: &out.ApplicationUtilization, allNamedMetrics: &out.AllNamed,
	}
	applied := false
	for _, name := range names {
		named, ok := strings.CutPrefix(name, resource.NamedMetricPrefix)
		switch {
		case known[name] != nil:
			*known[name] = true
		case ok && named != "":
			out.Named = append(out.Named, named)
		default:
			v.warn("lrs_report_endpoint_metrics", "has %q, which is not applied: known are %s, %s, %s, %s and %sNAME", name,
				resource.MetricCPUUtilization, resource.MetricMemUtilization, resource.MetricApplicationUtilization, allNamedMetrics, resource.NamedMetricPrefix)
			continue
		}
		applied = true
	}
	if !applied {
		return nil
	}
	slices.Sort(out.Named)
	out.Named = slices.Compact(out.Named)
	if out.AllNamed {
		out.Named = nil
	}
	return &out
}

// connectModes are the values of metadata lbd.connect.
var connectModes = []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold, resource.ConnectTLS, resource.ConnectNone}

// ownFields are the fields of metadata lbd.
var ownFields = []string{"connect", "limit_scope", "max_backoff", "max_lease_share"}

// limitScope validates metadata lbd.limit_scope, and reports whether it is fleet.
func (v clusterValidator) limitScope(fields map[string]*structpb.Value) bool {
	value, ok := fields["limit_scope"]
	if !ok {
		return false
	}
	scope := value.GetStringValue()
	if scope != "fleet" && scope != "daemon" {
		v.reject(`metadata.filter_metadata["lbd"].limit_scope`, "must be fleet or daemon")
	}
	if scope == "fleet" && !v.Fleet {
		v.warn(`metadata.filter_metadata["lbd"].limit_scope`, "applies to this daemon only: it shares no store with others")
	}
	return scope == "fleet"
}

// maxLeaseShare validates metadata lbd.max_lease_share; 0 if it is absent.
func (v clusterValidator) maxLeaseShare(fields map[string]*structpb.Value) float64 {
	value, ok := fields["max_lease_share"]
	if !ok {
		return 0
	}
	share := value.GetNumberValue()
	if _, isNumber := value.GetKind().(*structpb.Value_NumberValue); !isNumber || !(share > 0 && share <= 1) {
		v.reject(`metadata.filter_metadata["lbd"].max_lease_share`, "must be a number above 0, and 1 at most")
		return 0
	}
	return share
}

// maxBackoff validates metadata lbd.max_backoff; 0 if it is absent.
func (v clusterValidator) maxBackoff(fields map[string]*structpb.Value) time.Duration {
	value, ok := fields["max_backoff"]
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(value.GetStringValue())
	if err != nil || d < time.Second || d > 2*time.Minute {
		v.reject(`metadata.filter_metadata["lbd"].max_backoff`, `must be a duration of 1s to 2m, such as "10s"`)
		return 0
	}
	return d
}

func (v clusterValidator) connect(fields map[string]*structpb.Value) resource.ConnectMode {
	const field = `metadata.filter_metadata["lbd"]`
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(ownFields, name) {
			v.warn(field+"."+name, "has no effect: known are connect, limit_scope, max_backoff and max_lease_share")
		}
	}
	value, ok := fields["connect"]
	if !ok {
		return resource.ConnectDefault
	}
	mode := resource.ConnectMode(value.GetStringValue())
	if !slices.Contains(connectModes, mode) {
		text, err := json.Marshal(value.AsInterface())
		if err != nil {
			text = []byte("no text")
		}
		v.reject(field+".connect", "is %s: it must be one of %q", text, connectModes)
		return resource.ConnectDefault
	}
	return mode
}

// thresholds applies max_requests of the first threshold of priority DEFAULT, and warns of
// the other thresholds. Zero is a limit too: it admits no request.
func (v clusterValidator) thresholds(m *clusterv3.CircuitBreakers, c *resource.Cluster) {
	first := true
	for i, t := range m.GetThresholds() {
		at := element("circuit_breakers.thresholds", i)
		switch {
		case t.GetPriority() != corev3.RoutingPriority_DEFAULT:
			v.warnUnapplied(m, "thresholds", at, "is not applied: the priority is %s, and picks have priority DEFAULT", t.GetPriority())
		case !first:
			v.warnUnapplied(m, "thresholds", at, "is not applied: the first threshold of priority DEFAULT is")
		default:
			first = false
			if limit := t.GetMaxRequests(); limit != nil {
				c.MaxRequests, c.MaxRequestsConfigured = limit.GetValue(), true
			}
		}
	}
}

// leafFields are the fields that an aggregate does not apply.
var leafFields = []protoreflect.Name{"circuit_breakers", "lrs_server", "lrs_report_endpoint_metrics", "outlier_detection", "transport_socket", "eds_cluster_config", "load_assignment"}

// dependentFields warns of the fields that are applied to other Clusters, but not to this
// one. fieldTable has those that are never applied.
func (v clusterValidator) dependentFields(m *clusterv3.Cluster, c *resource.Cluster) {
	if v.Stored {
		return
	}
	chosen := m.GetLbPolicy()
	if m.GetLoadBalancingPolicy() != nil {
		chosen = clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG
	}
	const leavesOwn = "is not applied: the clusters of an aggregate have their own"
	for name := range set(m) {
		switch {
		case c.Type == resource.ClusterAggregate && slices.Contains(leafFields, name):
			v.warnUnapplied(m, name, string(name), leavesOwn)
		case c.Type == resource.ClusterEDS && name == "load_assignment":
			v.warnUnapplied(m, name, string(name), "is not applied: %s", whereEndpoints)
		case c.Type == resource.ClusterLogicalDNS && name == "eds_cluster_config":
			v.warnUnapplied(m, name, string(name), "is not applied: the type is LOGICAL_DNS")
		case name == "ring_hash_lb_config" && chosen != clusterv3.Cluster_RING_HASH,
			name == "least_request_lb_config" && chosen != clusterv3.Cluster_LEAST_REQUEST:
			v.warnUnapplied(m, name, string(name), "is not applied: it belongs to another lb_policy")
		}
	}
	if c.Type == resource.ClusterAggregate && c.Connect != resource.ConnectDefault {
		v.warnUnapplied(m, "metadata", `metadata.filter_metadata["lbd"].connect`, leavesOwn)
	}
	if c.Type == resource.ClusterAggregate && c.MaxBackoff != 0 {
		v.warnUnapplied(m, "metadata", `metadata.filter_metadata["lbd"].max_backoff`, leavesOwn)
	}
}
