package resource

import (
	"encoding/json"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// cluster judges a Cluster, whose name is judged already, and makes the value.
// The value is of use only where nothing was refused.
func (v *verdict) cluster(m *clusterv3.Cluster) *Cluster {
	c := &Cluster{
		Name:           m.GetName(),
		Type:           v.discovery(m),
		EDSServiceName: m.GetEdsClusterConfig().GetServiceName(),
		MaxRequests:    DefaultMaxRequests,
		Policy:         v.policyOf(m),
		LRSToSelf:      v.lrs(m),
		Connect:        v.connect(m.GetMetadata()),
	}
	if limit, ok := maxRequests(m.GetCircuitBreakers()); ok {
		c.MaxRequests, c.MaxRequestsConfigured = limit, true
	}
	v.outlierDetection(m.GetOutlierDetection())
	if len(m.GetTransportSocketMatches()) > 0 {
		v.refuse("transport_socket_matches", "is not supported")
	}
	v.clusterFieldsWithoutEffect(m)
	return c
}

// Where a cluster's endpoints may come from, as a refusal says it.
const (
	edsOnly     = "supported is EDS"
	pushInstead = "write type: EDS, and give the endpoints as a ClusterLoadAssignment: pushed under the cluster's endpoints, or from a management server"
)

// discovery judges how the cluster finds its endpoints. Each kind that lbd can
// run has its arm.
func (v *verdict) discovery(m *clusterv3.Cluster) ClusterType {
	switch t := m.GetClusterDiscoveryType().(type) {
	case *clusterv3.Cluster_Type:
		switch t.Type {
		case clusterv3.Cluster_EDS:
			v.eds(m)
		case clusterv3.Cluster_STATIC, clusterv3.Cluster_STRICT_DNS:
			v.refuse("type", "%s is not supported: %s", t.Type, pushInstead)
		default:
			v.refuse("type", "%s is not supported: %s", t.Type, edsOnly)
		}
	case *clusterv3.Cluster_ClusterType:
		v.refuse("cluster_type.name", "%q is not supported: %s", t.ClusterType.GetName(), edsOnly)
	default:
		v.refuse("type", "is absent, which means STATIC, and that is not supported: %s", pushInstead)
	}
	return ClusterEDS
}

// eds judges an EDS cluster's eds_cluster_config.
func (v *verdict) eds(m *clusterv3.Cluster) {
	const field = "eds_cluster_config"
	service := m.GetEdsClusterConfig().GetServiceName()
	if strings.HasPrefix(m.GetName(), "xdstp:") && service == "" {
		v.refuse(field+".service_name", "is absent, and a cluster whose name begins with xdstp: must have one")
	}
	if v.byHand && service != "" {
		if reason := badName(service); reason != "" {
			v.refuse(field+".service_name", "%s", reason)
		}
	}
	source := m.GetEdsClusterConfig().GetEdsConfig()
	switch source.GetConfigSourceSpecifier().(type) {
	case *corev3.ConfigSource_Ads, *corev3.ConfigSource_Self:
		return
	case *corev3.ConfigSource_PathConfigSource:
		if v.byHand {
			v.warn(field+".eds_config.path_config_source", "is not read: %s", whereEndpoints)
			return
		}
	case *corev3.ConfigSource_Path:
		if v.byHand {
			v.warn(field+".eds_config.path", "is not read: %s", whereEndpoints)
			return
		}
	case nil:
		if v.byHand {
			return
		}
	}
	v.refuse(field+".eds_config", "is %s: it must be ads or self", specifier(source))
}

const whereEndpoints = "the endpoints are those that are pushed, in lbd's own files, or from a management server"

// specifier names what a config source is set to.
func specifier(s *corev3.ConfigSource) string {
	m := s.ProtoReflect()
	fd := m.WhichOneof(m.Descriptor().Oneofs().ByName("config_source_specifier"))
	if fd == nil {
		return "absent"
	}
	return string(fd.Name())
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
var connectModes = []ConnectMode{ConnectTCP, ConnectTCPHold, ConnectNone}

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

// outlierDetection judges outlier_detection (gRFC A50).
func (v *verdict) outlierDetection(m *clusterv3.OutlierDetection) {
	if m == nil {
		return
	}
	const field = "outlier_detection."
	for _, d := range []struct {
		name  string
		value interface {
			CheckValid() error
			GetSeconds() int64
			GetNanos() int32
		}
		set bool
	}{
		{"interval", m.GetInterval(), m.GetInterval() != nil},
		{"base_ejection_time", m.GetBaseEjectionTime(), m.GetBaseEjectionTime() != nil},
		{"max_ejection_time", m.GetMaxEjectionTime(), m.GetMaxEjectionTime() != nil},
	} {
		if !d.set {
			continue
		}
		if err := d.value.CheckValid(); err != nil {
			v.refuse(field+d.name, "is no duration: %s", plain(err))
		} else if d.value.GetSeconds() < 0 || d.value.GetNanos() < 0 {
			v.refuse(field+d.name, "is negative")
		}
	}
	for _, p := range []struct {
		name  string
		value uint32
	}{
		{"max_ejection_percent", m.GetMaxEjectionPercent().GetValue()},
		{"enforcing_success_rate", m.GetEnforcingSuccessRate().GetValue()},
		{"failure_percentage_threshold", m.GetFailurePercentageThreshold().GetValue()},
		{"enforcing_failure_percentage", m.GetEnforcingFailurePercentage().GetValue()},
	} {
		if p.value > 100 {
			v.refuse(field+p.name, "is %d: it must be at most 100", p.value)
		}
	}
}

// applied are the fields of a Cluster that lbd heeds, or judges elsewhere.
var applied = []string{
	"name", "type", "cluster_type", "eds_cluster_config", "lb_policy", "load_balancing_policy",
	"circuit_breakers", "lrs_server", "metadata", "transport_socket_matches",
}

// withoutEffect is said of fields whose absence would be noticed, whoever
// wrote them.
var withoutEffect = map[string]string{
	"transport_socket":  "is not applied: connections are plain, without TLS",
	"outlier_detection": "is not applied: no endpoint is ejected",
	"health_checks":     "is not applied: health is what EDS says, and whether an endpoint can be connected to",
}

// clusterFieldsWithoutEffect warns of fields that lbd does not heed.
func (v *verdict) clusterFieldsWithoutEffect(m *clusterv3.Cluster) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		name := string(fields.Get(i).Name())
		if !r.Has(fields.Get(i)) || slices.Contains(applied, name) {
			continue
		}
		reason, ok := withoutEffect[name]
		switch {
		case ok:
			v.warn(name, "%s", reason)
		case name == "load_assignment":
			v.warnByHand(name, "is not applied: %s", whereEndpoints)
		default:
			v.warnByHand(name, "is not applied")
		}
	}
}
