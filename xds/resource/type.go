package resource

// typeURLPrefix begins the type URL of every xDS resource.
const typeURLPrefix = "type.googleapis.com/"

// Type is a kind of resource, by its proto message's name.
type Type string

// The types of resources.
const (
	TypeListener   Type = "Listener"              // LDS
	TypeRoutes     Type = "RouteConfiguration"    // RDS
	TypeCluster    Type = "Cluster"               // CDS
	TypeAssignment Type = "ClusterLoadAssignment" // EDS
)

// URL returns the v3 type URL, as in a DiscoveryRequest and an Any; empty for other types.
func (t Type) URL() string {
	switch t {
	case TypeCluster:
		return typeURLPrefix + "envoy.config.cluster.v3.Cluster"
	case TypeAssignment:
		return typeURLPrefix + "envoy.config.endpoint.v3.ClusterLoadAssignment"
	case TypeListener:
		return typeURLPrefix + "envoy.config.listener.v3.Listener"
	case TypeRoutes:
		return typeURLPrefix + "envoy.config.route.v3.RouteConfiguration"
	default:
		return ""
	}
}

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
