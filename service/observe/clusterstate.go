package observe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb"
	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/service/difference"
	"github.com/lbd-dev/lbd/service/fault"
	"github.com/lbd-dev/lbd/service/ledger"
	"github.com/lbd-dev/lbd/service/overlays"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ClusterSummary is the summary of one cluster.
type ClusterSummary struct {
	Name string `json:"name"`
	// Target is the xds target in whose tree the state is; absent for the
	// cluster's own tree.
	Target string `json:"target,omitempty"`
	// Targets are the xds targets whose routes lead to the cluster.
	Targets []string `json:"targets,omitempty"`
	// State is the connectivity state; WARMING if the cluster has no balancer tree yet, which its
	// first pick builds.
	State string `json:"state" enums:"READY,CONNECTING,IDLE,TRANSIENT_FAILURE,WARMING"`
	// PriorityInUse is -1 if no priority is in use.
	PriorityInUse int `json:"priority_in_use"`
	// Trouble is why picks or requests fail now; absent if they do not.
	Trouble *Trouble `json:"trouble,omitempty"`
	// Endpoints counts the endpoints of all priorities.
	Endpoints EndpointCounts `json:"endpoints"`
	// EndpointsInUse counts those of the priority in use; absent if the cluster has only
	// one priority, or none is in use.
	EndpointsInUse *EndpointCounts `json:"endpoints_in_use,omitempty"`
	// Breaker is absent for an AGGREGATE, whose leaves have their own, and for a cluster
	// that cannot be used.
	Breaker *BreakerState `json:"circuit_breaker,omitempty"`
	// Source is the source of the cluster's endpoints.
	Source string `json:"source" enums:"push,file,ads,cache,dns"`
	// Version is the management server's version of the endpoints.
	Version string `json:"version,omitempty"`
	// Updated is the time of the last change of the cluster's resources; absent without
	// any.
	Updated time.Time `json:"updated_at,omitzero" validate:"optional"`
	// Stale is true if resources of the cluster are from a management server that is
	// unreachable.
	Stale      bool  `json:"stale"`
	Generation int64 `json:"generation"`
	// Notes say what is not as a source has it: which resources a push or a file covers, and what was
	// refused since the last change. Only in lists of clusters; absent without any.
	Notes []string `json:"notes,omitempty" example:"ClusterLoadAssignment/orders: a push covers that of a management server"`
	// OverlayCount is how many overlays the cluster has; absent without any.
	OverlayCount int `json:"overlay_count,omitempty"`
}

// EndpointCounts counts endpoints by state.
type EndpointCounts struct {
	policy.Census

	// Unhealthy endpoints get no picks because of their EDS health.
	Unhealthy int `json:"unhealthy"`
	Total     int `json:"total"`
}

// BreakerState is the circuit breaker of a cluster.
type BreakerState struct {
	InFlight    int64  `json:"in_flight"`
	MaxRequests uint32 `json:"max_requests"`
	// LimitFrom is the source of max_requests.
	LimitFrom string `json:"limit_from" enums:"config,default"`
	Open      bool   `json:"open"`
	Rejected  uint64 `json:"rejected"`
	// Fleet is the share that this daemon has of max_requests, if that is one limit for all daemons of
	// the store; absent if it is of this daemon.
	Fleet *FleetShare `json:"fleet,omitempty"`
}

// FleetShare is what a daemon has of a limit of the fleet.
type FleetShare struct {
	// Joined is false while the daemon has no session in the store: it admits no requests then.
	Joined bool `json:"joined"`
	// Limit is the limit in force: the smallest max_requests that any daemon knows; 0 until it is known.
	Limit int64 `json:"limit"`
	// Share is how many requests this daemon may have in flight.
	Share int64 `json:"share"`
	// Demand is how many it would like to have in flight.
	Demand int64 `json:"demand"`
	// Spare is how many requests the other daemons can leave to this one, because they do not need
	// them.
	Spare int64 `json:"spare"`
}

// ClusterState is the aggregated state of one cluster.
type ClusterState struct {
	ClusterSummary
	// StateSince is when the cluster got its state; absent without a balancer tree.
	StateSince *time.Time `json:"state_since,omitempty"`
	// Error is why picks fail.
	Error string `json:"error,omitempty"`
	// AmbientErrors are the resources of a management server that the cluster uses in
	// spite of an error.
	AmbientErrors []AmbientError `json:"ambient_errors,omitempty"`
	// ConfigSource is the source of the cluster's configuration; default if it was not
	// configured.
	ConfigSource string `json:"config_source" enums:"push,file,ads,cache,default"`
	// Absent if the cluster has an error.
	Type string `json:"type,omitempty" enums:"EDS,LOGICAL_DNS,AGGREGATE"`
	// Leaves are the leaf clusters of an AGGREGATE, in order, nested aggregates
	// flattened. Their drops and circuit breakers count for all clusters and targets.
	Leaves []LeafState `json:"leaves,omitempty"`
	// DNSHostname is the name that a LOGICAL_DNS cluster resolves.
	DNSHostname string `json:"dns_hostname,omitempty"`
	// EDSServiceName is the name of the assignment that serves the cluster.
	EDSServiceName string `json:"eds_service_name,omitempty"`
	Policy         string `json:"policy,omitempty"`
	// ConnectMode is how lbd connects to endpoints; NoticeTime is the longest time until
	// it notices a lost connection: a Go duration, or "never".
	ConnectMode string `json:"connect_mode,omitempty"`
	NoticeTime  string `json:"notice_time,omitempty"`
	// Security is from the cluster's transport_socket; absent without one.
	Security   *SecurityState  `json:"security,omitempty"`
	Age        string          `json:"age,omitempty"` // since updated_at, a Go duration
	Drops      []DropState     `json:"drops"`
	Priorities []PriorityState `json:"priorities"`
	// Leases counts the held leases of the cluster in all targets.
	Leases int64 `json:"leases"`
	// Overlays are the overlays that are applied to the cluster, the oldest first; for an AGGREGATE, those
	// of its leaves. Absent without any.
	Overlays []overlays.Overlay `json:"overlays,omitempty"`
	// Covers are the resources of other sources that are not in use, because a push or a file has them,
	// too. Absent without any.
	Covers []Cover `json:"covers,omitempty"`
}

// Cover is a resource of a source that a push or a file covers: it is not in use.
type Cover struct {
	Resource string `json:"resource" example:"ClusterLoadAssignment/orders"`
	// Source is the source that is covered, and UpdatedAt the time of the last change of its resource.
	Source    string    `json:"source" enums:"file,ads,cache"`
	UpdatedAt time.Time `json:"updated_at"`
	// By is the source of the resource in use, Since the time of its last change.
	By    string    `json:"by" enums:"push,file"`
	Since time.Time `json:"since"`
	// Author is who pushed the resource in use last; absent if that is not known.
	Author string `json:"author,omitempty"`
	// Differs is the difference in words, from what is covered to what is in use; absent if there is none.
	Differs string `json:"differs,omitempty"`
}

// LeafState is a leaf cluster of an AGGREGATE.
type LeafState struct {
	Name  string `json:"name"`
	InUse bool   `json:"in_use"` // it gets the picks
	Why   string `json:"why"`    // why it is, or is not, in use
	State string `json:"state" enums:"READY,CONNECTING,IDLE,TRANSIENT_FAILURE"`
	// Skipped is why the leaf cannot be used: the leaf or its endpoints do not exist or
	// are in error (gRFC A74). If the Cluster itself is, the fields below are absent.
	Skipped string        `json:"skipped,omitempty"`
	Policy  string        `json:"policy,omitempty"`
	Breaker *BreakerState `json:"circuit_breaker,omitempty"`
	Drops   []DropState   `json:"drops"`
	// ConnectMode and NoticeTime are as a cluster's own.
	ConnectMode string         `json:"connect_mode,omitempty"`
	NoticeTime  string         `json:"notice_time,omitempty"`
	Security    *SecurityState `json:"security,omitempty"`
}

// SecurityState is how connections to a cluster's endpoints are secured by TLS.
type SecurityState struct {
	// Root is the certificate provider of the trusted roots; without one, SystemRoots is
	// true.
	Root        string `json:"root,omitempty"`
	SystemRoots bool   `json:"system_roots,omitempty"`
	// Identity is the certificate provider of the client certificate.
	Identity string `json:"identity,omitempty"`
	// SANs are the accepted names of a certificate, such as exact "orders.example";
	// absent if every name is accepted.
	SANs []string `json:"san,omitempty"`
	// The server name (SNI) that is sent.
	SNI string `json:"sni,omitempty"`
	// The endpoint's hostname is sent as the server name.
	AutoHostSNI bool `json:"auto_host_sni,omitempty"`
	// The certificate must have the server name that is sent.
	AutoSANValidation bool `json:"auto_sni_san_validation,omitempty"`
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
	// InUseSince is when the priority came into use; absent if it is not in use.
	InUseSince *time.Time `json:"in_use_since,omitempty"`
	Why        string     `json:"why"` // why it is, or is not, in use
	State      string     `json:"state"`
	Started    bool       `json:"started"`
	// FailoverAt is when the next priority is started if this one is not READY by then;
	// ForgetAt is when its connections are closed.
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

// LocalityState is one locality of a priority.
type LocalityState struct {
	Locality Locality `json:"locality"`
	Weight   uint32   `json:"weight"`
	// Share is the part of all picks that the locality gets now, 0 to 1; absent if the
	// policy does not know it.
	Share *float64 `json:"share,omitempty"`
	State string   `json:"state"`
	// Picks counts the successful picks.
	Picks     uint64          `json:"picks"`
	Endpoints []EndpointState `json:"endpoints,omitempty"`
}

// EndpointState is one endpoint of a locality.
type EndpointState struct {
	Address   string   `json:"address"`
	Addresses []string `json:"additional_addresses,omitempty"`
	Hostname  string   `json:"hostname,omitempty"`
	Weight    uint32   `json:"weight"`
	Health    string   `json:"health" enums:"UNKNOWN,HEALTHY,UNHEALTHY,DRAINING,TIMEOUT,DEGRADED"` // EDS health
	// Overlay is the ID of the overlay that takes the endpoint out of use: health is of the overlay then.
	Overlay string `json:"overlay,omitempty"`
	// State is the connectivity state; UNHEALTHY or EJECTED if the endpoint gets no picks
	// because of EDS health or outlier detection.
	State string `json:"state"`
	// Share is the part of all picks that the endpoint gets now, 0 to 1; absent if the
	// policy does not know it. For ring_hash, it is the part of the hashes; for
	// least_request, the part if all endpoints are equally busy.
	Share *float64 `json:"share,omitempty"`
	// NeverPicked is true if no request hash leads to the endpoint, because the ring of ring_hash has no entry for it.
	NeverPicked bool `json:"never_picked,omitempty"`
	// LastError is why the connection failed, or why the endpoint is ejected.
	LastError string `json:"last_error,omitempty"`
	// EjectedUntil is when the ejection may end: it ends with the next interval of
	// outlier detection after that time.
	EjectedUntil *time.Time `json:"ejected_until,omitempty"`
	// Registration is until when a registered endpoint stays; absent for others.
	Registration *Registration `json:"registration,omitempty"`
}

// AmbientError is a resource of a management server whose last good version is in use in
// spite of an error (gRFC A88).
type AmbientError struct {
	Resource string `json:"resource" example:"Cluster/cart"`
	// Error is what is wrong: the server deleted the resource, reports an error for it,
	// sent an invalid version of it, or is unreachable.
	Error string `json:"error"`
	// Since is when the error was first reported.
	Since time.Time `json:"since"`
}

func ambientList(a *ledger.Ambient) []AmbientError {
	var out []AmbientError
	for _, e := range a.Errors() {
		out = append(out, AmbientError{Resource: e.Key.String(), Error: e.Err.Error(), Since: e.Since.UTC()})
	}
	return out
}

// describeTimeout is how long a state dump waits for a tree.
const describeTimeout = 5 * time.Second

var errNoAnswer = fmt.Errorf("the tree did not answer within %v", describeTimeout)

// Clusters returns the summaries of all clusters that picks can use, by name: of their own
// trees, or else of the first xds target that has them.
func (s *State) Clusters() []ClusterSummary {
	out := []ClusterSummary{}
	h, notes := s.ledger.Hosted(), s.notes()
	h.Clusters(func(m *ledger.Cluster, targets []string) { out = append(out, summarizeAll(h, m, targets, notes(m))) })
	slices.SortFunc(out, func(a, b ClusterSummary) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// CountClusters returns the number of clusters of all targets, for the cost of describing them.
func (s *State) CountClusters() int { return s.ledger.Hosted().Len() }

// CountEndpoints returns the number of endpoints that Cluster describes; 0 for an unknown cluster.
func (s *State) CountEndpoints(name, target string) int {
	m, err := s.ledger.Find(name, target)
	if err != nil {
		return 0
	}
	return countEndpoints(m)
}

func countEndpoints(m *ledger.Cluster) (n int) {
	for _, l := range m.Localities() {
		n += len(l.Endpoints)
	}
	return n
}

// Cluster returns the state of a cluster in an xds target, with or without its endpoints.
// Without a target, it uses the tree that Clusters uses. It fails with UnknownTarget,
// UnknownCluster, and with Internal if the tree does not answer in 5 s.
func (s *State) Cluster(ctx context.Context, name, target string, endpoints bool) (*ClusterState, error) {
	m, err := s.ledger.Find(name, target)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, describeTimeout, errNoAnswer)
	defer cancel()
	generation := m.Target.Channel.Generation() // the description is not older
	node, err := m.Target.Channel.DescribeCluster(ctx, name)
	label := "" // the caller may not see a target that it did not name
	if target != "" {
		label = m.Target.Label
	}
	switch {
	case errors.Is(err, lb.ErrClosed):
		return nil, s.ledger.Gone(name, label)
	case errors.Is(err, errNoAnswer):
		return nil, fault.Errorf(fault.Internal, "cluster %q: %v", name, errNoAnswer).Of(name, label)
	case err != nil:
		return nil, fault.FromContext(err)
	}
	out := s.describe(m, node, endpoints)
	out.Generation = generation
	if cc := m.ClusterConfig(); s.options.Covers != nil && cc.Err == nil {
		out.Covers = s.options.Covers(cc, name)
	}
	if cc := m.ClusterConfig(); s.options.Registered != nil && cc.Err == nil && cc.AssignmentFrom.Source == resource.SourcePush {
		out.addRegistrations(cc.Cluster.AssignmentName(), s.options.Registered)
	}
	h := s.ledger.Hosted()
	if out.Targets = h.LivesIn(name); target == "" {
		out.Trouble = troubleOfAll(h, m, out.Targets)
	}
	return out, nil
}

// AwaitCluster returns when the generation of the cluster is not g, wait has passed, or
// the service drains.
func (s *State) AwaitCluster(ctx context.Context, name, target string, g int64, wait time.Duration) error {
	m, err := s.ledger.Find(name, target)
	if err != nil {
		return err
	}
	s.waiting.WithLabelValues("longpoll").Inc()
	defer s.waiting.WithLabelValues("longpoll").Dec()
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(s.options.Draining, cancel)()
	m.Target.Channel.WaitForGeneration(waiting, g)
	return fault.FromContext(ctx.Err())
}

// warming is the state of a cluster, and of a target, without a tree.
const warming = "WARMING"

func stateOf(c *lb.Channel, s connectivity.State) string {
	if c.Warming() {
		return warming
	}
	return s.String()
}

func summarize(m *ledger.Cluster) ClusterSummary {
	cc := m.ClusterConfig()
	channel := m.Target.Channel
	sum := channel.ClusterSummary(m.Name)
	out := ClusterSummary{
		Name: m.Name, Target: m.Target.Label, State: stateOf(channel, sum.State), PriorityInUse: sum.Priority, Trouble: troubleOf(m),
		Source: cc.AssignmentFrom.Source.String(), Version: cc.AssignmentFrom.Version, Updated: ledger.Updated(cc), Stale: m.Stale(), Generation: channel.Generation(),
	}
	for _, c := range sum.Priorities {
		out.Endpoints.Census = out.Endpoints.Add(c)
	}
	out.Endpoints.Total = countEndpoints(m)
	out.Endpoints.Unhealthy = out.Endpoints.Total - m.Usable()
	if len(sum.Priorities) > 1 && sum.Priority >= 0 && sum.Priority < len(sum.Priorities) {
		out.EndpointsInUse = endpointsOf(m, sum.Priority, sum.Priorities[sum.Priority])
	}
	if l, ok := m.Own(); ok {
		out.Breaker = breakerState(l)
	}
	for _, leaf := range m.Config.Leaves(m.Name) {
		out.OverlayCount += len(leaf.Overlays())
	}
	return out
}

// endpointsOf counts the endpoints of one priority. census has the usable ones.
func endpointsOf(m *ledger.Cluster, priority int, census policy.Census) *EndpointCounts {
	out := EndpointCounts{Census: census}
	for p, l := range m.Localities() {
		if p != priority {
			continue
		}
		out.Total += len(l.Endpoints)
		for _, e := range l.Endpoints {
			if !e.Usable() {
				out.Unhealthy++
			}
		}
	}
	return &out
}

// Within removes from the summary the targets that are out of a scope: it does not show what
// refers to the cluster.
func (c ClusterSummary) Within(s *ledger.Scope) ClusterSummary {
	c.Targets = s.Targets(c.Targets)
	if !s.Target(c.Target) {
		c.Target = ""
	}
	if t := c.Trouble; t != nil && !s.Target(t.Target) {
		masked := *t
		masked.Target, c.Trouble = "", &masked
	}
	return c
}

// Within is that of [ClusterSummary], for the whole state.
func (c *ClusterState) Within(s *ledger.Scope) *ClusterState {
	if s.All() {
		return c
	}
	out := *c
	out.ClusterSummary = c.ClusterSummary.Within(s)
	if out.Target != c.Target { // the target's Listener and routes are not the cluster's
		out.AmbientErrors = slices.DeleteFunc(slices.Clone(c.AmbientErrors), func(e AmbientError) bool { return !e.ofCluster() })
	}
	return &out
}

// ofCluster reports whether the resource is of a cluster, and not of the target.
func (e AmbientError) ofCluster() bool {
	kind := difference.Change{Resource: e.Resource}.Key().Type
	return kind == resource.TypeCluster || kind == resource.TypeAssignment
}
