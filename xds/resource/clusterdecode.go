package resource

import (
	"encoding/json"
	"iter"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
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
	} else {
		c.Security = v.security(m)
	}
	v.clusterFieldsWithoutEffect(m, c)
	return c
}

// lrs judges lrs_server, and reports whether loads go to the server that sent
// the cluster.
func (v *verdict) lrs(m *clusterv3.Cluster) bool {
	s := m.GetLrsServer()
	if s == nil {
		return false
	}
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

// applied are the fields of every Cluster that lbd heeds, or judges elsewhere.
var applied = []string{
	"name", "type", "cluster_type", "lb_policy", "load_balancing_policy",
	"circuit_breakers", "lrs_server", "lrs_report_endpoint_metrics", "outlier_detection", "metadata",
	"transport_socket", "transport_socket_matches",
}

// leavesOwn are the fields that mean nothing on an aggregate.
var leavesOwn = []string{"circuit_breakers", "lrs_server", "lrs_report_endpoint_metrics", "outlier_detection", "transport_socket", "eds_cluster_config", "load_assignment"}

// clusterFieldsWithoutEffect warns of fields that lbd does not heed.
func (v *verdict) clusterFieldsWithoutEffect(m *clusterv3.Cluster, c *Cluster) {
	var own []string
	switch c.Type {
	case ClusterEDS:
		own = append(own, "eds_cluster_config")
	case ClusterLogicalDNS:
		own = append(own, "load_assignment")
	case ClusterAggregate:
	}
	if m.GetLoadBalancingPolicy() == nil {
		switch m.GetLbPolicy() {
		case clusterv3.Cluster_RING_HASH:
			own = append(own, "ring_hash_lb_config")
		case clusterv3.Cluster_LEAST_REQUEST:
			own = append(own, "least_request_lb_config")
		default:
		}
	}
	for name := range set(m) {
		switch {
		case name == "health_checks": // its absence would be noticed, whoever wrote it
			v.warn(name, "is not applied: health is what EDS says, and whether an endpoint can be connected to")
		case c.Type == ClusterAggregate && slices.Contains(leavesOwn, name):
			v.warnByHand(name, "is not applied: the clusters of an aggregate have their own")
		case slices.Contains(applied, name) || slices.Contains(own, name):
		case c.Type == ClusterEDS && name == "load_assignment":
			v.warnByHand(name, "is not applied: %s", whereEndpoints)
		default:
			v.warnByHand(name, "is not applied")
		}
	}
	if c.Type == ClusterAggregate && c.Connect != ConnectDefault {
		v.warnByHand(`metadata.filter_metadata["lbd"].connect`, "is not applied: the clusters of an aggregate have their own")
	}
}

// heeds warns whoever wrote m, which stands at a path, by hand of its fields
// that are set and not among the applied ones.
func (v *verdict) heeds(m proto.Message, field string, applied ...string) {
	for name := range v.unheeded(m, applied) {
		v.warn(join(field, name), "is not applied")
	}
}

// unheeded yields the names of m's fields that are set and not among the applied
// ones, where m is written by hand.
func (v *verdict) unheeded(m proto.Message, applied []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !v.byHand {
			return
		}
		for name := range set(m) {
			if !slices.Contains(applied, name) && !yield(name) {
				return
			}
		}
	}
}

// set yields the names of m's fields that are set, in their order.
func set(m proto.Message) iter.Seq[string] {
	return func(yield func(string) bool) {
		r := m.ProtoReflect()
		fields := r.Descriptor().Fields()
		for i := range fields.Len() {
			if r.Has(fields.Get(i)) && !yield(string(fields.Get(i).Name())) {
				return
			}
		}
	}
}
