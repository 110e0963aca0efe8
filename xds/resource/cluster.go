package resource

import "time"

// DefaultMaxRequests is the circuit breaker's limit where the cluster
// configures none (Envoy's and gRPC's default, gRFC A32).
const DefaultMaxRequests = 1024

// ClusterType tells where a cluster's endpoints come from.
type ClusterType uint8

// The cluster types of gRPC's xDS.
const (
	ClusterEDS ClusterType = iota
	ClusterLogicalDNS
	ClusterAggregate
)

// String returns the name that Envoy gives the type.
func (t ClusterType) String() string {
	switch t {
	case ClusterLogicalDNS:
		return "LOGICAL_DNS"
	case ClusterAggregate:
		return "AGGREGATE"
	default:
		return "EDS"
	}
}

// ConnectMode is how lbd finds out whether an endpoint can be connected to.
type ConnectMode string

// The connect modes. The empty mode is the daemon's own (--connect).
const (
	ConnectDefault ConnectMode = ""
	// ConnectTCP connects, closes, and does so again every few seconds; over TLS
	// where the cluster has a Security, as ConnectTCPHold is.
	ConnectTCP ConnectMode = "tcp"
	// ConnectTCPHold holds one connection; its loss is known at once.
	ConnectTCPHold ConnectMode = "tcp_hold"
	// ConnectTLS is ConnectTCPHold over TLS, whether the cluster has a Security
	// or not. Where it has none, the system's roots are trusted, and the
	// certificate has to bear the endpoint's name.
	ConnectTLS ConnectMode = "tls"
	// ConnectNone takes every endpoint as connected.
	ConnectNone ConnectMode = "none"
)

// PolicyName is a load balancing policy as gRPC's registry names it.
type PolicyName string

// The policies that a Cluster can choose.
const (
	PolicyWRRLocality        PolicyName = "xds_wrr_locality_experimental"
	PolicyRoundRobin         PolicyName = "round_robin"
	PolicyWeightedRoundRobin PolicyName = "weighted_round_robin"
	PolicyLeastRequest       PolicyName = "least_request_experimental"
	PolicyRingHash           PolicyName = "ring_hash_experimental"
	PolicyPickFirst          PolicyName = "pick_first"
)

// Policy is a cluster's load balancing policy: a locality-picking policy with
// its child, or an endpoint-picking policy alone, which then chooses among the
// endpoints of all localities.
type Policy struct {
	Name PolicyName
	// Child is what picks the endpoint within a locality; nil for a policy
	// without child.
	Child *Policy

	// Config is the policy's JSON config in gRPC's service-config form, as the policy
	// applies it; empty for a policy that has none.
	Config string
}

// OutlierDetection is a cluster's outlier_detection (gRFC A50), with its
// defaults filled in. Percentages are 0 to 100.
type OutlierDetection struct {
	Interval           time.Duration
	BaseEjectionTime   time.Duration
	MaxEjectionTime    time.Duration
	MaxEjectionPercent uint32
	// SuccessRate and FailurePercentage are nil where they are not enforced.
	SuccessRate       *SuccessRateEjection
	FailurePercentage *FailurePercentageEjection
}

// SuccessRateEjection ejects endpoints whose success rate is StdevFactor / 1000
// standard deviations below the mean.
type SuccessRateEjection struct {
	StdevFactor           uint32
	EnforcementPercentage uint32
	MinimumHosts          uint32
	RequestVolume         uint32
}

// FailurePercentageEjection ejects endpoints that fail Threshold percent or
// more.
type FailurePercentageEjection struct {
	Threshold             uint32
	EnforcementPercentage uint32
	MinimumHosts          uint32
	RequestVolume         uint32
}

// Cluster is a Cluster (CDS). A value is never changed after decoding.
type Cluster struct {
	Name string
	Type ClusterType
	// EDSServiceName is the Assignment that serves the cluster; empty means
	// Name.
	EDSServiceName string
	// DNSHostname is the "host:port" of LOGICAL_DNS.
	DNSHostname string
	// Leaves are the names of an AGGREGATE cluster's clusters, the preferred
	// first.
	Leaves []string
	// OutlierDetection is nil where it is not configured.
	OutlierDetection *OutlierDetection
	// MaxRequests is the first DEFAULT-priority threshold's max_requests, or
	// DefaultMaxRequests.
	MaxRequests uint32
	// MaxRequestsConfigured tells a configured MaxRequests from the default.
	MaxRequestsConfigured bool
	// Policy is load_balancing_policy, or what lb_policy stands for.
	Policy Policy
	// LRSToSelf is true where lrs_server is self.
	LRSToSelf bool
	// LoadMetrics are the metrics of upstreams that are part of load reports; nil
	// for none.
	LoadMetrics *LoadMetrics
	// Security is nil where connections are plain, unless Connect is ConnectTLS.
	Security *Security
	// Connect is metadata lbd.connect, or ConnectDefault.
	Connect ConnectMode
}

// AssignmentName is the name of the Assignment that serves the cluster.
func (c *Cluster) AssignmentName() string {
	if c.EDSServiceName != "" {
		return c.EDSServiceName
	}
	return c.Name
}

// DefaultCluster is what a cluster without configuration has: EDS,
// ROUND_ROBIN, max_requests 1024.
func DefaultCluster(name string) *Cluster {
	return &Cluster{
		Name:        name,
		Type:        ClusterEDS,
		MaxRequests: DefaultMaxRequests,
		Policy:      RoundRobinPolicy(),
	}
}

// RoundRobinPolicy is what lb_policy ROUND_ROBIN stands for (gRFC A52): a
// weighted choice of locality, and round_robin within it.
func RoundRobinPolicy() Policy {
	return Policy{Name: PolicyWRRLocality, Child: &Policy{Name: PolicyRoundRobin}}
}
