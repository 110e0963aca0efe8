package resource

// Listener is a Listener (LDS), the first resource of a target. It is immutable.
type Listener struct {
	Name      string
	RouteName string              // of the RouteConfiguration from RDS; empty if it is inline
	Routes    *RouteConfiguration // inline; nil if RouteName is set
	// ServerSide is true for a listener without api_listener, which configures a port of
	// a gRPC server. Only a management server can send it; it has no routes.
	ServerSide bool
}
