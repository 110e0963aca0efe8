package policy

import (
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/xds/resource"
)

// The names of the policies above an endpoint policy, as in gRPC's registry.
const (
	ClusterManager = "xds_cluster_manager_experimental"
	CDS            = "cds_experimental"
	ClusterImpl    = "xds_cluster_impl_experimental"
	Priority       = "priority_experimental"
	WRRLocality    = string(resource.PolicyWRRLocality)
	WeightedTarget = "weighted_target_experimental"

	OutlierDetection = "outlier_detection_experimental"
)

// Child is what a policy hands to a child: which policy it is, its config and
// its endpoints.
type Child struct {
	Policy string
	Config serviceconfig.LoadBalancingConfig
	// Endpoints is nil where Config carries them.
	Endpoints []resolver.Endpoint
	// Localities are those that Endpoints are of, for [WeightsOf].
	Localities []*Locality
}

// State is the child's part as grpc's balancers take it.
func (c Child) State() balancer.ClientConnState {
	s := balancer.ClientConnState{
		ResolverState:  resolver.State{Endpoints: c.Endpoints},
		BalancerConfig: c.Config,
	}
	if c.Localities != nil {
		s.ResolverState.Attributes = attributes.New(localitiesKey{}, c.Localities)
	}
	return s
}

// ClusterManagerConfig is cluster_manager's: one child per cluster.
type ClusterManagerConfig struct {
	serviceconfig.LoadBalancingConfig
	Children map[string]Child
}

// CDSConfig is cds's: the cluster to build from the target's config.
type CDSConfig struct {
	serviceconfig.LoadBalancingConfig
	Cluster string
	XDS     *resource.Config
	// First is the number of the cluster's first priority: that of the first
	// priority of a leaf among all priorities of its AGGREGATE, else 0.
	First int
}

// ClusterImplConfig is cluster_impl's: drops and circuit breaking of one
// cluster.
type ClusterImplConfig struct {
	serviceconfig.LoadBalancingConfig
	Service ServiceKey
	Drops   []resource.Drop
	// Localities are those of the cluster, whose picks are counted.
	Localities []*resource.LocalityEndpoints
	// LoadMetrics are the metrics of upstreams that count for load reports.
	LoadMetrics *resource.LoadMetrics
	MaxRequests uint32
	// Connect is how the cluster's endpoints are connected to, and Security how
	// these connections are secured; nil for not, unless Connect says so.
	Connect  resource.ConnectMode
	Security *resource.Security
	Child    Child
}

// PriorityConfig is priority's: its children from the highest priority on.
type PriorityConfig struct {
	serviceconfig.LoadBalancingConfig
	// Cluster is named in events.
	Cluster string
	// First is the number of the first child's priority.
	First    int
	Children []PriorityChild
}

// PriorityChild is one priority, or one leaf of an AGGREGATE.
type PriorityChild struct {
	// Name stays with the priority's localities across updates. That of a leaf
	// is its cluster.
	Name  string
	Child Child
	// Size is how many endpoints the priority has that picks may reach.
	Size int
	// Leaf is nil for a priority.
	Leaf *Leaf
}

// Leaf is a leaf of an AGGREGATE, as the priority policy over the leaves sees it.
type Leaf struct {
	// Sizes has one entry for each priority of the leaf, and at least one: how
	// many endpoints of it picks may reach.
	Sizes []int
	// Err is why the leaf is skipped: it does not exist or is in error, or its
	// endpoints do or are. It is nil for a leaf that is not skipped.
	Err error
}

// WRRLocalityConfig is wrr_locality's: the localities of one priority.
type WRRLocalityConfig struct {
	serviceconfig.LoadBalancingConfig
	Localities []*Locality
	// EndpointPolicy picks the endpoint within each locality; its Endpoints
	// are left empty.
	EndpointPolicy Child
}

// WeightedTargetConfig is weighted_target's.
type WeightedTargetConfig struct {
	serviceconfig.LoadBalancingConfig
	Targets []Target
}

// Target is one weighted child.
type Target struct {
	Locality *Locality
	Child    Child
}

// OutlierDetectionConfig is outlier_detection's.
type OutlierDetectionConfig struct {
	serviceconfig.LoadBalancingConfig
	// OutlierDetection is nil where it is not configured: nothing is detected.
	*resource.OutlierDetection
	// Cluster is named in events.
	Cluster string
	Child   Child
}
