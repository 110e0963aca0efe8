package resource

// typeURLPrefix begins the type URL of every xDS resource.
const typeURLPrefix = "type.googleapis.com/"

// Type is a kind of resource, by its proto message's name.
type Type string

// The types that the decoder knows.
const (
	// TypeListener is LDS's resource.
	TypeListener Type = "Listener"
	// TypeRoutes is RDS's resource.
	TypeRoutes Type = "RouteConfiguration"
	// TypeCluster is CDS's resource.
	TypeCluster Type = "Cluster"
	// TypeAssignment is EDS's resource.
	TypeAssignment Type = "ClusterLoadAssignment"
)

// URL returns the v3 type URL, as a DiscoveryRequest and an Any bear it. It is
// empty for a type that the decoder does not know.
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
