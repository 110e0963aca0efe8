package encode

import (
	"encoding/json"
	"fmt"

	xdsv3 "github.com/cncf/xds/go/xds/type/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	roundrobinv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/round_robin/v3"
	wrrlocalityv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/wrr_locality/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Cluster returns a Cluster. Equal values give equal bytes.
func Cluster(c *resource.Cluster) ([]byte, error) {
	m := &clusterv3.Cluster{Name: c.Name, OutlierDetection: outlierDetection(c.OutlierDetection), LrsReportEndpointMetrics: loadMetrics(c.LoadMetrics)}
	if c.LRSToSelf {
		m.LrsServer = &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Self{Self: &corev3.SelfConfigSource{}}}
	}
	if c.MaxRequestsConfigured {
		m.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{MaxRequests: wrapperspb.UInt32(c.MaxRequests)}}}
	}
	own := map[string]*structpb.Value{}
	if c.Connect != resource.ConnectDefault {
		own["connect"] = structpb.NewStringValue(string(c.Connect))
	}
	if c.FleetLimit {
		own["limit_scope"] = structpb.NewStringValue("fleet")
	}
	if c.MaxBackoff > 0 {
		own["max_backoff"] = structpb.NewStringValue(c.MaxBackoff.String())
	}
	if c.MaxLeaseShare > 0 {
		own["max_lease_share"] = structpb.NewNumberValue(c.MaxLeaseShare)
	}
	if len(own) > 0 {
		m.Metadata = metadata("lbd", own)
	}
	for _, part := range []func(*clusterv3.Cluster, *resource.Cluster) error{discovery, policyOf, security} {
		if err := part(m, c); err != nil {
			return nil, fmt.Errorf("encode the cluster %q: %w", c.Name, err)
		}
	}
	return deterministic.Marshal(m)
}

// discovery sets where the endpoints come from.
func discovery(m *clusterv3.Cluster, c *resource.Cluster) error {
	switch c.Type {
	case resource.ClusterAggregate:
		config, err := anypb.New(&aggregatev3.ClusterConfig{Clusters: c.Leaves})
		m.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: config,
		}}
		return err
	case resource.ClusterLogicalDNS:
		to, err := address(c.DNSHostname)
		m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_LOGICAL_DNS}
		m.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: c.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: to}}}},
		}}}
		return err
	default:
		m.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		m.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{
			ServiceName: c.EDSServiceName,
			EdsConfig:   &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}},
		}
		return nil
	}
}

// policyOf sets the load balancing policy: lb_policy for ROUND_ROBIN, which most clusters have.
func policyOf(m *clusterv3.Cluster, c *resource.Cluster) error {
	p := c.Policy
	if p.Name == resource.PolicyWRRLocality && p.Child != nil && p.Child.Name == resource.PolicyRoundRobin && p.Child.Config == "" {
		m.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		return nil
	}
	var err error
	m.LoadBalancingPolicy, err = policy(&p)
	return err
}

// policy returns a policy as load_balancing_policy has it: with a message of its own, or by gRPC's name.
func policy(p *resource.Policy) (*clusterv3.LoadBalancingPolicy, error) {
	var config proto.Message
	switch {
	case p.Name == resource.PolicyWRRLocality && p.Child != nil:
		child, err := policy(p.Child)
		if err != nil {
			return nil, err
		}
		config = &wrrlocalityv3.WrrLocality{EndpointPickingPolicy: child}
	case p.Name == resource.PolicyRoundRobin && p.Config == "":
		config = &roundrobinv3.RoundRobin{}
	default:
		value := &structpb.Struct{}
		if p.Config != "" {
			var members map[string]any
			if err := json.Unmarshal([]byte(p.Config), &members); err != nil {
				return nil, fmt.Errorf("config of %s: %w", p.Name, err)
			}
			var err error
			if value, err = structpb.NewStruct(members); err != nil {
				return nil, fmt.Errorf("config of %s: %w", p.Name, err)
			}
		}
		config = &xdsv3.TypedStruct{TypeUrl: "type.googleapis.com/" + string(p.Name), Value: value}
	}
	typed, err := anypb.New(config)
	if err != nil {
		return nil, err
	}
	return &clusterv3.LoadBalancingPolicy{Policies: []*clusterv3.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &corev3.TypedExtensionConfig{Name: string(p.Name), TypedConfig: typed},
	}}}, nil
}

func outlierDetection(o *resource.OutlierDetection) *clusterv3.OutlierDetection {
	if o == nil {
		return nil
	}
	m := &clusterv3.OutlierDetection{
		Interval: durationpb.New(o.Interval), BaseEjectionTime: durationpb.New(o.BaseEjectionTime),
		MaxEjectionTime: durationpb.New(o.MaxEjectionTime), MaxEjectionPercent: wrapperspb.UInt32(o.MaxEjectionPercent),
		EnforcingSuccessRate: wrapperspb.UInt32(0),
	}
	if r := o.SuccessRate; r != nil {
		m.SuccessRateStdevFactor, m.EnforcingSuccessRate = wrapperspb.UInt32(r.StdevFactor), wrapperspb.UInt32(r.EnforcementPercentage)
		m.SuccessRateMinimumHosts, m.SuccessRateRequestVolume = wrapperspb.UInt32(r.MinimumHosts), wrapperspb.UInt32(r.RequestVolume)
	}
	if f := o.FailurePercentage; f != nil {
		m.FailurePercentageThreshold, m.EnforcingFailurePercentage = wrapperspb.UInt32(f.Threshold), wrapperspb.UInt32(f.EnforcementPercentage)
		m.FailurePercentageMinimumHosts, m.FailurePercentageRequestVolume = wrapperspb.UInt32(f.MinimumHosts), wrapperspb.UInt32(f.RequestVolume)
	}
	return m
}

func loadMetrics(l *resource.LoadMetrics) []string {
	if l == nil {
		return nil
	}
	var out []string
	for _, metric := range []struct {
		name string
		on   bool
	}{
		{resource.MetricCPUUtilization, l.CPUUtilization},
		{resource.MetricMemUtilization, l.MemUtilization},
		{resource.MetricApplicationUtilization, l.ApplicationUtilization},
		{resource.NamedMetricPrefix + "*", l.AllNamed},
	} {
		if metric.on {
			out = append(out, metric.name)
		}
	}
	for _, name := range l.Named {
		out = append(out, resource.NamedMetricPrefix+name)
	}
	return out
}
