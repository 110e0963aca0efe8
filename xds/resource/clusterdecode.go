package resource

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

// cluster judges a Cluster, whose name is judged already, and makes the value.
// The value is of use only where nothing was refused.
func (v *verdict) cluster(m *clusterv3.Cluster) *Cluster {
	c := &Cluster{Name: m.GetName(), MaxRequests: DefaultMaxRequests}
	v.discovery(m, c)
	c.Policy = v.policyOf(m)
	c.LRSToSelf = v.lrs(m)
	c.LoadMetrics = v.loadMetrics(m)
	c.Connect = v.connect(m.GetMetadata())
	c.OutlierDetection = v.outlierDetection(m.GetOutlierDetection(), c.Policy)
	if limit, ok := maxRequests(m.GetCircuitBreakers()); ok {
		c.MaxRequests, c.MaxRequestsConfigured = limit, true
	}
	if len(m.GetTransportSocketMatches()) > 0 {
		v.refuse("transport_socket_matches", "is not supported")
	} else if c.Type != ClusterAggregate || !v.byHand {
		c.Security = v.security(m, c.Connect)
	}
	v.judgedFields(m, c)
	return c
}

// lrs judges lrs_server, and reports whether loads go to the server that sent
// the cluster.
func (v *verdict) lrs(m *clusterv3.Cluster) bool {
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
var connectModes = []ConnectMode{ConnectTCP, ConnectTCPHold, ConnectTLS, ConnectNone}

// connect judges metadata lbd.connect.
func (v *verdict) connect(m *corev3.Metadata) ConnectMode {
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
		return ConnectDefault
	}
	text, ok := value.GetKind().(*structpb.Value_StringValue)
	if !ok || !slices.Contains(connectModes, ConnectMode(text.StringValue)) {
		v.refuse(field+".connect", "is %s: it must be one of %q", asText(value), connectModes)
		return ConnectDefault
	}
	return ConnectMode(text.StringValue)
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
func (v *verdict) judgedFields(m *clusterv3.Cluster, c *Cluster) {
	if v.stored {
		return
	}
	chosen := m.GetLbPolicy()
	if m.GetLoadBalancingPolicy() != nil {
		chosen = clusterv3.Cluster_LOAD_BALANCING_POLICY_CONFIG
	}
	for name := range set(m) {
		switch {
		case c.Type == ClusterAggregate && slices.Contains(leavesOwn, name):
			v.warnUnapplied(m, name, string(name), "is not applied: the clusters of an aggregate have their own")
		case c.Type == ClusterEDS && name == "load_assignment":
			v.warnUnapplied(m, name, string(name), "is not applied: %s", whereEndpoints)
		case c.Type == ClusterLogicalDNS && name == "eds_cluster_config":
			v.warnUnapplied(m, name, string(name), "is not applied: the type is LOGICAL_DNS")
		case name == "ring_hash_lb_config" && chosen != clusterv3.Cluster_RING_HASH,
			name == "least_request_lb_config" && chosen != clusterv3.Cluster_LEAST_REQUEST:
			v.warnUnapplied(m, name, string(name), "is not applied: it belongs to another lb_policy")
		}
	}
	if c.Type == ClusterAggregate && c.Connect != ConnectDefault {
		v.warnUnapplied(m, "metadata", `metadata.filter_metadata["lbd"].connect`, "is not applied: the clusters of an aggregate have their own")
	}
	v.thresholds(m.GetCircuitBreakers())
}

// thresholds warns of those that are not the first of priority DEFAULT.
func (v *verdict) thresholds(m *clusterv3.CircuitBreakers) {
	first := true
	for i, t := range m.GetThresholds() {
		at := "circuit_breakers.thresholds[" + strconv.Itoa(i) + "]"
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

// set yields the names of m's fields that are set, in their order.
func set(m proto.Message) iter.Seq[protoreflect.Name] {
	return func(yield func(protoreflect.Name) bool) {
		r := m.ProtoReflect()
		fields := r.Descriptor().Fields()
		for i := range fields.Len() {
			if r.Has(fields.Get(i)) && !yield(fields.Get(i).Name()) {
				return
			}
		}
	}
}
