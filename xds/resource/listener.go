package resource

// Listener is an API listener (LDS): what a target is found by. A value is
// never changed after decoding.
type Listener struct {
	Name string
	// RouteName is the RouteConfiguration that the listener takes from RDS;
	// empty where Routes is inline.
	RouteName string
	// Routes is the inline RouteConfiguration; nil where RouteName is set.
	Routes *RouteConfiguration
}
