package resource

// Item is one resource, as a Bundle has it.
type Item struct {
	Key Key
	// Field is where the resource stands in the body, such as resources[3];
	// empty for one that is the body itself.
	Field string
	// Raw is what Decoded has in Raw.
	Raw []byte
	// Unapplied are the fields that are set and not applied, each once. Only
	// Resource of package decode sets it.
	Unapplied []UnappliedField
	// One of these is the value, by Key.Type; the others are nil.
	Listener   *Listener
	Routes     *RouteConfiguration
	Cluster    *Cluster
	Assignment *Assignment
}

// Same reports whether two items have the same value, by its pointer: one that an
// update leaves as it was keeps it.
func (i Item) Same(o Item) bool {
	return i.Listener == o.Listener && i.Routes == o.Routes && i.Cluster == o.Cluster && i.Assignment == o.Assignment
}

// UnappliedField is a field that is set in a resource and that lbd does not apply.
type UnappliedField struct {
	// Field is the name of the message in docs/fields.md, a dot, and the name of the
	// field. There are no others than those of the tables, so that a map with these
	// keys is bounded.
	Field string
	// Path is where the field is set first, as in a Problem.
	Path string
	// Reason says that the field is not applied, and what lbd does instead.
	Reason string
}
