package resource

// Item is one decoded resource.
type Item struct {
	Key   Key
	Field string // its path in the body, such as resources[3]; empty if it is the body
	Raw   []byte // as in Decoded
	// Unapplied are the fields that are set and not applied, each once. Only
	// decode.Resource sets it.
	Unapplied []UnappliedField
	// One of these is the value, by Key.Type; the others are nil.
	Listener   *Listener
	Routes     *RouteConfiguration
	Cluster    *Cluster
	Assignment *Assignment
}

// Same reports whether two items have the same value, by its pointer.
func (i Item) Same(o Item) bool {
	return i.Listener == o.Listener && i.Routes == o.Routes && i.Cluster == o.Cluster && i.Assignment == o.Assignment
}

// UnappliedField is a field that is set in a resource and that lbd does not apply.
type UnappliedField struct {
	// Field is the name of the message in docs/fields.md, a dot, and the name of the
	// field: the number of different values is bounded.
	Field  string
	Path   string // of the first field that is set, as in a Problem
	Reason string // that it is not applied, and what lbd does instead
}
