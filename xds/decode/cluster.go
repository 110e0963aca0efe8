package decode

import (
	"encoding/json"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// clusterValidator validates one Cluster.
type clusterValidator struct{ *report }

// validateCluster validates a Cluster, whose name is validated already.
func validateCluster(r *report, m *clusterv3.Cluster) *resource.Cluster {
	v := clusterValidator{r}
	c := &resource.Cluster{Name: m.GetName(), MaxRequests: resource.DefaultMaxRequests}
	v.discovery(m, c)
	c.Policy = policyValidator{r}.policyOf(m)
	c.LRSToSelf = v.lrs(m)
	c.LoadMetrics = v.loadMetrics(m)
	c.Connect = v.connect(m.GetMetadata())
	c.OutlierDetection = v.outlierDetection(m.GetOutlierDetection(), c.Policy)
	if limit, ok := maxRequests(m.GetCircuitBreakers()); ok {
		c.MaxRequests, c.MaxRequestsConfigured = limit, true
	}
	if len(m.GetTransportSocketMatches()) > 0 {
		v.refuse("transport_socket_matches", "is not supported")
	} else if c.Type != resource.ClusterAggregate || !v.byHand {
		c.Security = tlsValidator{r}.cluster(m, c.Connect)
	}
	v.judgedFields(m, c)
	return c
}

// lrs judges lrs_server, and reports whether loads go to the server that sent
// the cluster.
func (v clusterValidator) lrs(m *clusterv3.Cluster) bool {
	s := m.GetLrsServer()
	if s == nil {
		return false
	}
	v.apiVersion(s.GetResourceApiVersion(), "lrs_server.resource_api_version")
	v.apiVersion(s.GetSelf().GetTransportApiVersion(), "lrs_server.self.transport_api_version")
	if s.GetSelf() == nil {
		v.refuse("lrs_server", "is %s: it must be self", specifier(s))
	}
	return true
}

// connectModes are what metadata lbd.connect may say.
var connectModes = []resource.ConnectMode{resource.ConnectTCP, resource.ConnectTCPHold, resource.ConnectTLS, resource.ConnectNone}

// connect judges metadata lbd.connect.
func (v clusterValidator) connect(m *corev3.Metadata) resource.ConnectMode {
	const field = `metadata.filter_metadata["lbd"]`
	fields := m.GetFilterMetadata()["lbd"].GetFields()
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if name != "connect" {
			v.warn(field+"."+name, "has no effect: known is connect")
		}
	}
	value, ok := fields["connect"]
	if !ok {
		return resource.ConnectDefault
	}
	text, ok := value.GetKind().(*structpb.Value_StringValue)
	if !ok || !slices.Contains(connectModes, resource.ConnectMode(text.StringValue)) {
		v.refuse(field+".connect", "is %s: it must be one of %q", asText(value), connectModes)
		return resource.ConnectDefault
	}
	return resource.ConnectMode(text.StringValue)
}

// asText writes a Struct's value as JSON, for a refusal.
func asText(value *structpb.Value) string {
	text, err := json.Marshal(value.AsInterface())
	if err != nil {
		return "no text"
	}
	return string(text)
}

// maxRequests is the first DEFAULT-priority threshold's max_requests. Zero is a
// limit too: it lets nothing through.
func maxRequests(b *clusterv3.CircuitBreakers) (limit uint32, ok bool) {
	for _, t := range b.GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT {
			return t.GetMaxRequests().GetValue(), t.GetMaxRequests() != nil
		}
	}
	return 0, false
}

// leavesOwn are the fields that mean nothing on an aggregate.
var leavesOwn = []protoreflect.Name{"circuit_breakers", "lrs_server", "lrs_report_endpoint_metrics", "outlier_detection", "transport_socket", "eds_cluster_config", "load_assignment"}

// judgedFields warns of the fields that are applied to some Clusters only and not to
// this one. Those that are never applied are in clusterFields.
func (v clusterValidator) judgedFields(m *clusterv3.Cluster, c *resource.Cluster) {
	if v.stored {
		return
	}
	chosen := m.GetLbPolicy()
	if m.GetLoadBalancingPolicy() != nil {
		chosen = clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG
	}
	for name := range set(m) {
		switch {
		case c.Type == resource.ClusterAggregate && slices.Contains(leavesOwn, name):
			v.warnUnapplied(m, name, string(name), "is not applied: the clusters of an aggregate have their own")
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
		v.warnUnapplied(m, "metadata", `metadata.filter_metadata["lbd"].connect`, "is not applied: the clusters of an aggregate have their own")
	}
	v.thresholds(m.GetCircuitBreakers())
}

// thresholds warns of those that are not the first of priority DEFAULT.
func (v clusterValidator) thresholds(m *clusterv3.CircuitBreakers) {
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
		}
	}
}
