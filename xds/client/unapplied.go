package client

import (
	"log/slog"

	"github.com/lbd-dev/lbd/xds/resource"
)

// UnappliedField is a field that lbd does not apply, and that is set in resources in use.
type UnappliedField struct {
	Type resource.Type
	// Field is that of a resource.UnappliedField.
	Field string
	// Server and Name identify one of the resources. Path is the place of the field in
	// it, and Reason is what lbd does instead.
	Server, Name, Path, Reason string
	// Resources is the number of resources with the field, counted once per server.
	Resources int
}

// unappliedKey identifies a field. The tables of package decode bound the number of them.
type unappliedKey struct {
	kind  resource.Type
	field string
}

// unappliedFields tracks which resources in use have fields that are not applied. Owner only.
type unappliedFields struct {
	logger *slog.Logger
	// fields has an entry for each field since the start, so that it is logged once.
	fields map[unappliedKey]*unappliedField
}

type unappliedField struct {
	resources map[*resourceState]struct{}
	example   *resourceState // one of resources; nil if there is none
}

// add adds a resource, and logs each field that no resource of its type had before.
func (u *unappliedFields) add(r *resourceState) {
	for i := range r.item.Unapplied {
		field := &r.item.Unapplied[i]
		key := unappliedKey{r.key.Type, field.Field}
		f := u.fields[key]
		if f == nil {
			f = &unappliedField{resources: map[*resourceState]struct{}{}}
			u.fields[key] = f
			u.logger.Warn("management server sent a field that is not applied; the same field of other resources of this type is only counted, see GET /v1/xds",
				"server", r.server.URI, "resource", r.key.String(), "path", field.Path, "field", field.Field, "reason", field.Reason)
		}
		if f.resources[r] = struct{}{}; f.example == nil {
			f.example = r
		}
	}
}

func (u *unappliedFields) remove(r *resourceState) {
	for i := range r.item.Unapplied {
		f := u.fields[unappliedKey{r.key.Type, r.item.Unapplied[i].Field}]
		delete(f.resources, r)
		if f.example != r {
			continue
		}
		f.example = nil
		for other := range f.resources {
			f.example = other
			break
		}
	}
}

// list returns the fields of the resources in use, in no order.
func (u *unappliedFields) list() []UnappliedField {
	var list []UnappliedField
	for key, f := range u.fields {
		if f.example == nil {
			continue
		}
		for _, field := range f.example.item.Unapplied {
			if field.Field == key.field {
				list = append(list, UnappliedField{
					Type: key.kind, Field: field.Field, Server: f.example.server.URI, Name: f.example.key.Name,
					Path: field.Path, Reason: field.Reason, Resources: len(f.resources),
				})
			}
		}
	}
	return list
}
