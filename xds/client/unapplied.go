package client

import (
	"cmp"
	"log/slog"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// UnappliedField is a field that lbd does not apply, and that is set in resources in use.
type UnappliedField struct {
	Type resource.Type `json:"type" swaggertype:"string" enums:"Listener,RouteConfiguration,Cluster,ClusterLoadAssignment"`
	// Field is a message and its field, as in docs/fields.md.
	Field string `json:"field"`
	// Reason is what lbd does instead.
	Reason string `json:"reason"`
	// Example is the name of a resource with the field.
	Example string `json:"example"`
	// Path is where the field is in the example.
	Path string `json:"path"`
	// Server sent the example.
	Server string `json:"server"`
	// Resources counts the resources in use with the field, once for each server.
	Resources int `json:"resources"`
}

// unappliedKey identifies a field. The tables of package decode bound the number of them.
type unappliedKey struct {
	kind  resource.Type
	field string
}

// unappliedFields tracks which resources in use have fields that are not applied. Owner only.
type unappliedFields struct {
	logger *slog.Logger
	// resources has an entry for each field since the start, so that it is logged once.
	resources map[unappliedKey]map[*resourceState]struct{}
}

// add adds a resource, and logs each field that no resource of its type had before.
func (u *unappliedFields) add(r *resourceState) {
	for i := range r.item.Unapplied {
		field := &r.item.Unapplied[i]
		key := unappliedKey{r.key.Type, field.Field}
		if u.resources[key] == nil {
			u.resources[key] = map[*resourceState]struct{}{}
			u.logger.Warn("management server sent a field that is not applied; the same field of other resources of this type is only counted, see GET /v1/xds",
				"server", r.server.URI, "resource", r.key.String(), "path", field.Path, "field", field.Field, "reason", field.Reason)
		}
		u.resources[key][r] = struct{}{}
	}
}

func (u *unappliedFields) remove(r *resourceState) {
	for i := range r.item.Unapplied {
		delete(u.resources[unappliedKey{r.key.Type, r.item.Unapplied[i].Field}], r)
	}
}

// list returns the fields of the resources in use, in no order. The example of a field is
// its first resource by name.
func (u *unappliedFields) list() []UnappliedField {
	var list []UnappliedField
	for key, resources := range u.resources {
		var example *resourceState
		for r := range resources {
			if example == nil || cmp.Or(cmp.Compare(r.key.Name, example.key.Name), cmp.Compare(r.server.URI, example.server.URI)) < 0 {
				example = r
			}
		}
		if example == nil {
			continue
		}
		i := slices.IndexFunc(example.item.Unapplied, func(f resource.UnappliedField) bool { return f.Field == key.field })
		first := example.item.Unapplied[i]
		list = append(list, UnappliedField{
			Type: key.kind, Field: first.Field, Reason: first.Reason, Path: first.Path,
			Example: example.key.Name, Server: example.server.URI, Resources: len(resources),
		})
	}
	return list
}
