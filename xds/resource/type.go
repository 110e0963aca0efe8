package resource

// Type is a kind of resource, by its proto message's name.
type Type string

// The types of resources.
const (
	TypeListener   Type = "Listener"              // LDS
	TypeRoutes     Type = "RouteConfiguration"    // RDS
	TypeCluster    Type = "Cluster"               // CDS
	TypeAssignment Type = "ClusterLoadAssignment" // EDS
)

var urls = map[Type]string{
	TypeListener:   "type.googleapis.com/envoy.config.listener.v3.Listener",
	TypeRoutes:     "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	TypeCluster:    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	TypeAssignment: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
}

// URL returns the v3 type URL, as in a DiscoveryRequest and an Any; empty for other types.
func (t Type) URL() string { return urls[t] }

// Key names one resource.
type Key struct {
	Type Type
	Name string
}

// String returns "ClusterLoadAssignment/orders", or the type alone where there
// is no name.
func (k Key) String() string {
	if k.Name == "" {
		return string(k.Type)
	}
	return string(k.Type) + "/" + k.Name
}
