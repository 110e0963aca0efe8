package observe

import (
	"time"

	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ClusterSummary is one cluster in short.
type ClusterSummary struct {
	Name string `json:"name"`
	// Target is the xds target in whose tree the state is; absent for the
	// cluster's own tree.
	Target string `json:"target,omitempty"`
	// Targets are the xds targets whose routes lead to the cluster.
	Targets []string `json:"targets,omitempty"`
	State   string   `json:"state" enums:"READY,CONNECTING,IDLE,TRANSIENT_FAILURE"` // connectivity state
	// PriorityInUse is -1 where none is.
	PriorityInUse int `json:"priority_in_use"`
	// Endpoints counts the endpoints of all priorities.
	Endpoints EndpointCounts `json:"endpoints"`
	// EndpointsInUse counts those of the priority in use; absent where the cluster
	// has one priority only, or none is in use.
	EndpointsInUse *EndpointCounts `json:"endpoints_in_use,omitempty"`
	// Breaker is absent where a cluster has none: an AGGREGATE, whose leaves
	// have theirs, and a cluster that cannot be used.
	Breaker *BreakerState `json:"circuit_breaker,omitempty"`
	// Source is where the cluster's endpoints come from.
	Source string `json:"source" enums:"push,file,ads,cache,dns"`
	// Version is the management server's, of what Source says.
	Version string `json:"version,omitempty"`
	// Updated is when the newest of the cluster's resources became what it is;
	// absent where nobody has any.
	Updated time.Time `json:"updated_at,omitzero"`
	// Stale is true where part of what serves the cluster is of a management
	// server that is away.
	Stale      bool  `json:"stale"`
	Generation int64 `json:"generation"`
}

// EndpointCounts counts endpoints by state.
type EndpointCounts struct {
	Ready            int `json:"ready"`
	Connecting       int `json:"connecting"`
	Idle             int `json:"idle"`
	TransientFailure int `json:"transient_failure"`
	// Ejected endpoints are those that outlier detection keeps picks from.
	Ejected int `json:"ejected"`
	// Unhealthy endpoints are those that EDS health keeps picks from.
	Unhealthy int `json:"unhealthy"`
	Total     int `json:"total"`
}

// BreakerState is the circuit breaker of a cluster.
type BreakerState struct {
	InFlight    int64  `json:"in_flight"`
	MaxRequests uint32 `json:"max_requests"`
	// LimitFrom tells where max_requests comes from.
	LimitFrom string `json:"limit_from" enums:"config,default"`
	Open      bool   `json:"open"`
	Rejected  uint64 `json:"rejected"`
}

// ClusterState is the aggregated state of one cluster.
type ClusterState struct {
	ClusterSummary
	// Error is why picks fail, where they do.
	Error string `json:"error,omitempty"`
	// AmbientErrors are the resources of a management server that the cluster uses in
	// spite of an error; absent where there are none.
	AmbientErrors []AmbientError `json:"ambient_errors,omitempty"`
	// ConfigSource is where the cluster's configuration comes from; default is
	// that of a cluster that nobody configured.
	ConfigSource string `json:"config_source" enums:"push,file,ads,cache,default"`
	// Type, Policy, ConnectMode and NoticeTime are absent where the cluster
	// cannot be used: Error says why. Policy, ConnectMode and NoticeTime of an
	// AGGREGATE are its leaves'.
	Type string `json:"type,omitempty" enums:"EDS,LOGICAL_DNS,AGGREGATE"`
	// Leaves are the leaf clusters of an AGGREGATE, in order, nested aggregates
	// flattened. Load balancing policy, drops and circuit breaking are theirs; the
	// latter two count for all clusters and targets that pick from them.
	Leaves []LeafState `json:"leaves,omitempty"`
	// DNSHostname is what a LOGICAL_DNS cluster resolves.
	DNSHostname string `json:"dns_hostname,omitempty"`
	// EDSServiceName is the name of the assignment that serves the cluster.
	EDSServiceName string `json:"eds_service_name,omitempty"`
	Policy         string `json:"policy,omitempty"`
	// ConnectMode is how endpoints are connected to; NoticeTime is how long it
	// can take to notice that one is lost: a Go duration, or "never".
	ConnectMode string `json:"connect_mode,omitempty"`
	NoticeTime  string `json:"notice_time,omitempty"`
	// Security is how connections are secured, by the cluster's transport_socket;
	// absent where there is none.
	Security   *SecurityState  `json:"security,omitempty"`
	Age        string          `json:"age,omitempty"` // since updated_at, a Go duration
	Drops      []DropState     `json:"drops"`
	Priorities []PriorityState `json:"priorities"`
	// Leases are those of the cluster in all trees.
	Leases int64 `json:"leases"`
}

// LeafState is a leaf cluster of an AGGREGATE.
type LeafState struct {
	Name  string `json:"name"`
	InUse bool   `json:"in_use"` // picks go to this leaf
	Why   string `json:"why"`    // why it is in use or is not
	State string `json:"state" enums:"READY,CONNECTING,IDLE,TRANSIENT_FAILURE"`
	// Skipped is why the leaf cannot serve: it does not exist or is in error, or
	// its endpoints do or are (gRFC A74). Absent for a leaf that can. What follows
	// is absent where the Cluster itself does not exist or is in error.
	Skipped string        `json:"skipped,omitempty"`
	Policy  string        `json:"policy,omitempty"`
	Breaker *BreakerState `json:"circuit_breaker,omitempty"`
	Drops   []DropState   `json:"drops"`
	// ConnectMode and NoticeTime are as a cluster's own.
	ConnectMode string `json:"connect_mode,omitempty"`
	NoticeTime  string `json:"notice_time,omitempty"`
	// Security is the leaf's; absent where there is none.
	Security *SecurityState `json:"security,omitempty"`
}

// SecurityState is how connections to a cluster's endpoints are secured by TLS.
type SecurityState struct {
	// Root is the certificate provider whose roots are trusted; where there is
	// none SystemRoots is true.
	Root        string `json:"root,omitempty"`
	SystemRoots bool   `json:"system_roots,omitempty"`
	// Identity is the certificate provider of the certificate that is shown to
	// endpoints that ask.
	Identity string `json:"identity,omitempty"`
	// SANs are the names of which a certificate has to bear one, such as
	// exact "orders.example"; any will do where there are none.
	SANs []string `json:"san,omitempty"`
	// SNI is the server name that is sent; AutoHostSNI sends the endpoint's
	// hostname. With AutoSANValidation the certificate has to bear that name.
	SNI               string `json:"sni,omitempty"`
	AutoHostSNI       bool   `json:"auto_host_sni,omitempty"`
	AutoSANValidation bool   `json:"auto_sni_san_validation,omitempty"`
}

// DropState is one drop category.
type DropState struct {
	Category   string `json:"category"`
	PerMillion uint64 `json:"per_million"`
	Dropped    uint64 `json:"dropped"`
}

// PriorityState is one priority of a cluster.
type PriorityState struct {
	Priority int `json:"priority"`
	// Cluster is the leaf of an AGGREGATE that the priority belongs to.
	Cluster string `json:"cluster,omitempty"`
	InUse   bool   `json:"in_use"`
	// InUseSince is when picks began to go to the priority of this number;
	// absent where they do not.
	InUseSince *time.Time `json:"in_use_since,omitempty"`
	Why        string     `json:"why"` // why it is in use or is not
	State      string     `json:"state"`
	Started    bool       `json:"started"`
	// FailoverAt is when the next priority is started, if this one is not
	// READY before; ForgetAt is when it gives up its connections.
	FailoverAt *time.Time      `json:"failover_at,omitempty"`
	ForgetAt   *time.Time      `json:"forget_at,omitempty"`
	Error      string          `json:"error,omitempty"`
	Localities []LocalityState `json:"localities"`
}

// Locality names a locality.
type Locality struct {
	Region  string `json:"region"`
	Zone    string `json:"zone"`
	SubZone string `json:"sub_zone"`
}

// LocalityOf returns the name of a locality.
func LocalityOf(l resource.Locality) Locality {
	return Locality{Region: l.Region, Zone: l.Zone, SubZone: l.SubZone}
}

// LocalityState is one locality of a priority.
type LocalityState struct {
	Locality Locality `json:"locality"`
	Weight   uint32   `json:"weight"`
	// Share is the part of all picks that the locality gets now, 0 to 1; absent
	// where the policy cannot tell.
	Share *float64 `json:"share,omitempty"`
	State string   `json:"state"`
	// Picks are the good picks so far.
	Picks     uint64          `json:"picks"`
	Endpoints []EndpointState `json:"endpoints,omitempty"`
}

// EndpointState is one endpoint of a locality.
type EndpointState struct {
	Address   string   `json:"address"`
	Addresses []string `json:"additional_addresses,omitempty"`
	Hostname  string   `json:"hostname,omitempty"`
	Weight    uint32   `json:"weight"`
	Health    string   `json:"health" enums:"UNKNOWN,HEALTHY,UNHEALTHY,DRAINING,TIMEOUT,DEGRADED"` // as EDS tells
	// State is the connectivity state; or UNHEALTHY where EDS health keeps
	// picks from it, EJECTED where outlier detection does.
	State string `json:"state"`
	// Share is the part of all picks that the endpoint gets now, 0 to 1; absent
	// where the policy cannot tell. Of ring_hash it is the part of the hashes that
	// lead to it; of least_request what it is while all are as busy.
	Share *float64 `json:"share,omitempty"`
	// LastError is why it cannot be connected to, or why it is ejected.
	LastError string `json:"last_error,omitempty"`
	// EjectedUntil is when its ejection is over; it is given back at the end of
	// the first interval of outlier detection then.
	EjectedUntil *time.Time `json:"ejected_until,omitempty"`
}

// AmbientError is a resource of a management server that is in use in spite of an
// error (gRFC A88): the last good version serves.
type AmbientError struct {
	Resource string `json:"resource" example:"Cluster/cart"`
	// Error is what is wrong: the server deleted the resource, reports an error for
	// it, sent an invalid version of it, or cannot be reached.
	Error string `json:"error"`
	// Since is when the error was first reported.
	Since time.Time `json:"since"`
}

// ambientList lists ambient errors.
func ambientList(a *ledger.Ambient) []AmbientError {
	var out []AmbientError
	for _, e := range a.Errors() {
		out = append(out, AmbientError{Resource: e.Key.String(), Error: e.Err.Error(), Since: e.Since.UTC()})
	}
	return out
}
