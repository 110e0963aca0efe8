package policy

import (
	"time"

	"google.golang.org/grpc/serviceconfig"

	"github.com/lbd-dev/lbd/xds/resource"
)

// The names of the policies above an endpoint policy, as in gRPC's registry.
const (
	ClusterManager = "xds_cluster_manager_experimental"
	CDS            = "cds_experimental"
	ClusterImpl    = "xds_cluster_impl_experimental"
	Priority       = "priority_experimental"
	WeightedTarget = "weighted_target_experimental"

	OutlierDetection = "outlier_detection_experimental"
)

// Child is a child's part of a config: its policy, and that policy's config and
// endpoints.
type Child struct {
	Policy string
	Config serviceconfig.LoadBalancingConfig
	// Endpoints is nil if Config has them. It must not be changed.
	Endpoints []*resource.Endpoint
	// Localities are those of Endpoints, for [WeightsOf].
	Localities []*Locality
}

// ClusterManagerConfig is cluster_manager's config: one child per cluster.
type ClusterManagerConfig struct {
	serviceconfig.LoadBalancingConfig
	Children map[string]Child
}

// CDSConfig is cds's config: the cluster to build from the target's config.
type CDSConfig struct {
	serviceconfig.LoadBalancingConfig
	Cluster string
	XDS     *resource.Config
	// First is the number of the cluster's first priority: for a leaf among all
	// priorities of its AGGREGATE, else 0.
	First int
}

// ClusterImplConfig is cluster_impl's config.
type ClusterImplConfig struct {
	serviceconfig.LoadBalancingConfig
	Service resource.ServiceKey
	Drops   []resource.Drop
	// Localities are those whose picks are counted.
	Localities []*resource.LocalityEndpoints
	// LoadMetrics are the metrics of upstreams in load reports.
	LoadMetrics *resource.LoadMetrics
	MaxRequests uint32
	// FleetLimit: MaxRequests is the limit of a fleet, of which [ClusterCounters.SharedLimit] is the part
	// of this process.
	FleetLimit bool
	// Connect is the connect mode of the endpoints, and Security their TLS; nil for
	// none, unless the mode is tls.
	Connect  resource.ConnectMode
	Security *resource.Security
	// MaxBackoff is that of [Link].
	MaxBackoff time.Duration
	Child      Child
}

// PriorityConfig is priority's config. The highest priority is first.
type PriorityConfig struct {
	serviceconfig.LoadBalancingConfig
	// Cluster is the name in events.
	Cluster string
	// First is the number of the first child.
	First    int
	Children []PriorityChild
}

// PriorityChild is one priority, or one leaf of an AGGREGATE.
type PriorityChild struct {
	// Name stays with the priority's localities across updates; of a leaf it is the
	// cluster.
	Name  string
	Child Child
	// Size is the number of usable endpoints.
	Size int
	Leaf *Leaf
}

// Leaf describes a leaf of an AGGREGATE.
type Leaf struct {
	// Sizes has the number of usable endpoints of each priority, at least one.
	Sizes []int
	// Err is why the leaf is skipped; nil if it is not.
	Err error
}

// WeightedTargetConfig is weighted_target's config: the localities of one priority.
type WeightedTargetConfig struct {
	serviceconfig.LoadBalancingConfig
	Targets []Target
}

// Target is one weighted child.
type Target struct {
	Locality *Locality
	Child    Child
}

// OutlierDetectionConfig is outlier_detection's config.
type OutlierDetectionConfig struct {
	serviceconfig.LoadBalancingConfig
	// OutlierDetection is nil if it is not configured.
	*resource.OutlierDetection
	// Cluster is the name in events.
	Cluster string
	// EndpointPolicy is the policy that picks an endpoint of one of Priorities, the highest
	// first.
	EndpointPolicy string
	Priorities     [][]*Locality
	Child          Child
}
