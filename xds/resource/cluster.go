package resource

import (
	"cmp"
	"reflect"
	"time"
)

// DefaultMaxRequests is the default limit of the circuit breaker (gRFC A32).
const DefaultMaxRequests = 1024

// ClusterType is the source of a cluster's endpoints.
type ClusterType uint8

// The cluster types of gRPC's xDS.
const (
	ClusterEDS ClusterType = iota
	ClusterLogicalDNS
	ClusterAggregate
)

// String returns the name that Envoy gives the type.
func (t ClusterType) String() string { return [...]string{"EDS", "LOGICAL_DNS", "AGGREGATE"}[t] }

// ConnectMode is how lbd checks whether an endpoint can be connected to.
type ConnectMode string

// The connect modes. The empty mode is the daemon's own (--connect).
const (
	ConnectDefault ConnectMode = ""
	// ConnectTCP connects and closes, every few seconds; over TLS if the cluster has a
	// Security, as ConnectTCPHold does.
	ConnectTCP ConnectMode = "tcp"
	// ConnectTCPHold keeps one connection open, and detects its loss at once.
	ConnectTCPHold ConnectMode = "tcp_hold"
	// ConnectTLS is ConnectTCPHold over TLS in any case. Without a Security the system's
	// roots are trusted, and the certificate must have the endpoint's name.
	ConnectTLS ConnectMode = "tls"
	// ConnectNone makes no connections: every endpoint counts as connected.
	ConnectNone ConnectMode = "none"
)

// PolicyName is a load balancing policy as gRPC's registry names it.
type PolicyName string

// The policies of lb_policy ROUND_ROBIN.
const (
	PolicyWRRLocality PolicyName = "xds_wrr_locality_experimental"
	PolicyRoundRobin  PolicyName = "round_robin"
)

// Policy is a cluster's load balancing policy: a locality-picking policy with its child, or
// an endpoint-picking policy alone, which then chooses among the endpoints of all
// localities.
type Policy struct {
	Name   PolicyName
	Child  *Policy // picks the endpoint within a locality; may be nil
	Config string  // JSON in gRPC's service-config form, as the policy applies it; may be empty
}

// Endpoint returns the name of the policy that picks the endpoint.
func (p Policy) Endpoint() PolicyName {
	for p.Child != nil {
		p = *p.Child
	}
	return p.Name
}

// OutlierDetection is a cluster's outlier_detection (gRFC A50) with defaults. Percentages
// are 0 to 100.
type OutlierDetection struct {
	Interval           time.Duration
	BaseEjectionTime   time.Duration
	MaxEjectionTime    time.Duration
	MaxEjectionPercent uint32
	SuccessRate        *SuccessRateEjection       // nil if it is not enforced
	FailurePercentage  *FailurePercentageEjection // nil if it is not enforced
}

// SuccessRateEjection ejects endpoints whose success rate is StdevFactor / 1000
// standard deviations below the mean.
type SuccessRateEjection struct {
	StdevFactor           uint32
	EnforcementPercentage uint32
	MinimumHosts          uint32
	RequestVolume         uint32
}

// FailurePercentageEjection ejects endpoints that fail Threshold percent or more.
type FailurePercentageEjection struct {
	Threshold             uint32
	EnforcementPercentage uint32
	MinimumHosts          uint32
	RequestVolume         uint32
}

// Cluster is a Cluster (CDS). It is immutable.
type Cluster struct {
	Name             string
	EDSServiceName   string            // the name of the Assignment, if not Name
	DNSHostname      string            // "host:port" of LOGICAL_DNS
	Leaves           []string          // clusters of an AGGREGATE, the preferred first
	OutlierDetection *OutlierDetection // nil if it is not configured
	// MaxLeaseShare is the part of MaxRequests that one owner may hold with leases; 0 is
	// the daemon's default. Source: metadata lbd.max_lease_share.
	MaxLeaseShare float64
	// MaxRequests is max_requests of the first threshold with priority DEFAULT, or
	// DefaultMaxRequests if that is not configured.
	MaxRequests uint32
	// FleetLimit: MaxRequests is one limit for all replicas of the store, instead of one for this
	// daemon. Source: metadata lbd.limit_scope.
	FleetLimit            bool
	LRSToSelf             bool // lrs_server is self
	Type                  ClusterType
	MaxRequestsConfigured bool
	Policy                Policy       // load_balancing_policy, or lb_policy
	LoadMetrics           *LoadMetrics // metrics of upstreams in load reports; nil for none
	Security              *Security    // nil if connections are plain, unless Connect is ConnectTLS
	Connect               ConnectMode  // metadata lbd.connect
	// MaxBackoff limits the pause between attempts to connect to an endpoint; 0 is gRPC's
	// limit, 120 s. Source: metadata lbd.max_backoff.
	MaxBackoff time.Duration
}

// AssignmentName is the name of the cluster's Assignment.
func (c *Cluster) AssignmentName() string { return cmp.Or(c.EDSServiceName, c.Name) }

// ServiceKey identifies the counters and the load of a cluster.
type ServiceKey struct {
	Cluster        string
	EDSServiceName string // empty if it is the name of the cluster
}

// ServiceKey returns what identifies the cluster's counters.
func (c *Cluster) ServiceKey() ServiceKey { return ServiceKey{c.Name, c.EDSServiceName} }

// DefaultCluster returns a cluster without configuration: EDS, ROUND_ROBIN, max_requests
// 1024.
func DefaultCluster(name string) *Cluster {
	return &Cluster{Name: name, Type: ClusterEDS, MaxRequests: DefaultMaxRequests, Policy: RoundRobinPolicy()}
}

// RoundRobinPolicy returns lb_policy ROUND_ROBIN (gRFC A52): a weighted choice of the
// locality, and round_robin within it.
func RoundRobinPolicy() Policy { return Policy{Name: PolicyWRRLocality, Child: roundRobin} }

var roundRobin = &Policy{Name: PolicyRoundRobin} // nearly all clusters have it

// Security is the TLS of connections to a cluster's endpoints (gRFC A29). Instances are the
// names of the bootstrap's certificate providers, certificates the names within them.
type Security struct {
	// RootInstance has the roots for a server's certificate; empty if SystemRoots is true
	// (gRFC A82).
	RootInstance, RootCertificate string
	SystemRoots                   bool
	// IdentityInstance has the client's own certificate; empty for none.
	IdentityInstance, IdentityCertificate string
	// SANs are the accepted subject alternative names of a server's certificate; empty
	// accepts any. The server's name is not compared with anything else.
	SANs []StringMatch
	// SNI is the server name that is sent; AutoHostSNI sends the endpoint's hostname, and
	// AutoSANValidation requires the name that was sent in the certificate (gRFC A101).
	SNI               string
	AutoHostSNI       bool
	AutoSANValidation bool
}

// Equal reports whether s and o are equal. Both may be nil.
func (s *Security) Equal(o *Security) bool { return s == o || reflect.DeepEqual(s, o) }
