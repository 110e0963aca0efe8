package resource

// Listener is a Listener (LDS): what a target is found by. A value is never
// changed after decoding.
type Listener struct {
	Name string
	// RouteName is the RouteConfiguration that the listener takes from RDS;
	// empty where Routes is inline.
	RouteName string
	// Routes is the inline RouteConfiguration; nil where RouteName is set.
	Routes *RouteConfiguration
	// ServerSide is true for a listener without api_listener, which configures a
	// port of a gRPC server. Only a management server can send one; it has no
	// routes, and no target can be found by it.
	ServerSide bool
}
