package resource

import "time"

// Item is one decoded resource.
type Item struct {
	Key   Key
	Field string // its path in the body, such as resources[3]; empty if it is the body
	Raw   []byte // as in Decoded
	// Unapplied are the fields that are set and not applied, each once. Only
	// decode.Resource sets it.
	Unapplied []UnappliedField
	// Shareable is true if nothing in the endpoints of an Assignment had to be reported, so
	// that a later version may share them: see Previous in the options of package decode.
	Shareable bool
	// Respelled is true if Raw has addresses in another spelling than an Assignment.
	Respelled bool
	Value
}

// Value is the value of a resource: the one of its type, or none. Values with the same
// pointer are equal.
type Value struct {
	Listener   *Listener
	Routes     *RouteConfiguration
	Cluster    *Cluster
	Assignment *Assignment
}

// References returns the resources that v names: what they are decides what v does. A name may be in it several times.
func (v *Value) References() (keys []Key) {
	add := func(t Type, names ...string) {
		for _, name := range names {
			keys = append(keys, Key{Type: t, Name: name})
		}
	}
	routes := v.Routes
	if l := v.Listener; l != nil {
		if routes = l.Routes; l.RouteName != "" {
			add(TypeRoutes, l.RouteName)
		}
	}
	if routes != nil {
		add(TypeCluster, routes.Clusters()...)
	}
	if c := v.Cluster; c != nil {
		add(TypeAssignment, c.AssignmentName())
		add(TypeCluster, c.Leaves...)
	}
	return keys
}

// UnappliedField is a field that is set in a resource and that lbd does not apply.
type UnappliedField struct {
	// Field is the name of the message in docs/fields.md, a dot, and the name of the
	// field: the number of different values is bounded.
	Field  string
	Path   string // of the first field that is set, as in a Problem
	Reason string // that it is not applied, and what lbd does instead
}

// Update is a new version of one resource, or the loss of it, on its way from a source
// (a push, a file, a management server, the last good versions on disk) to the resolver.
type Update struct {
	// Target is the target that a management server sent it to; empty for all.
	Target string
	// Item is the resource. If it has no value, Raw is decoded; if Raw and Err are nil
	// too, the source no longer has the resource.
	Item
	// Server is the URI of the management server that provided the value, or caused
	// Err; empty if no server can be asked. Fallback is true if it is not the first one of
	// its authority: the servers before it are unreachable, and may have the resource.
	Server   string
	Fallback bool
	// Version is the version_info of the management server's response with the last good
	// value; empty if there is none.
	Version string
	// Updated is the time of the last good value; of the error if there is none.
	Updated time.Time
	// Err is, without a value, why the source has no usable version. The last good version
	// of another run of lbd stays in use, unless Final is true.
	Err error
	// Ambient is true if the source's last good value stays in use despite Err.
	Ambient bool
	// Final is true if no earlier value may be used, such as one on disk (gRFC A88,
	// fail_on_data_errors). It has no effect for a Fallback.
	Final bool
}
