package client

import (
	"cmp"

	"github.com/lbd-dev/lbd/xds/resource"
)

// UnappliedField is a field that lbd does not apply, and that servers set in resources
// that are in use.
type UnappliedField struct {
	Type resource.Type
	// Field is that of a resource.UnappliedField.
	Field string
	// Server and Name are those of one of the resources, Path and Reason say where the
	// field is in it, and what lbd does instead.
	Server, Name, Path, Reason string
	// Resources is how many resources have the field, each once for each server that
	// sent it.
	Resources int
}

// unappliedKey identifies a field that lbd does not apply. There are no more of them
// than the tables of package resource have fields, for each type.
type unappliedKey struct {
	of    resource.Type
	field string
}

// unappliedField is such a field and the resources that have it. It stays when no
// resource has it any more, so that it is logged once for the life of the client.
type unappliedField struct {
	resources map[*serverResource]struct{}
	example   *serverResource // one of them; nil if there is none
}

// rememberUnapplied counts the fields of a resource that are not applied, and logs those
// that no resource of its type had before. It is for the owner.
func (c *Client) rememberUnapplied(r *serverResource) {
	for i := range r.item.Unapplied {
		u := &r.item.Unapplied[i]
		key := unappliedKey{r.key.Type, u.Field}
		f := c.unapplied[key]
		if f == nil {
			f = &unappliedField{resources: map[*serverResource]struct{}{}}
			c.unapplied[key] = f
			c.logger.Warn("management server sent a field that is not applied; the same field of other resources of this type is only counted, see GET /v1/xds",
				"server", r.server.config.URI, "resource", r.key.String(), "path", u.Path, "field", u.Field, "reason", u.Reason)
		}
		if f.resources[r] = struct{}{}; f.example == nil {
			f.example = r
		}
	}
}

// forgetUnapplied ends what rememberUnapplied began. It is for the owner.
func (c *Client) forgetUnapplied(r *serverResource) {
	for i := range r.item.Unapplied {
		f := c.unapplied[unappliedKey{r.key.Type, r.item.Unapplied[i].Field}]
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

// unappliedFields returns the fields that resources in use have, in no order. It is for
// the owner.
func (c *Client) unappliedFields() []UnappliedField {
	var list []UnappliedField
	for key, f := range c.unapplied {
		if f.example == nil {
			continue
		}
		for _, u := range f.example.item.Unapplied {
			if u.Field == key.field {
				list = append(list, UnappliedField{
					Type: key.of, Field: u.Field, Server: f.example.server.config.URI, Name: f.example.key.Name,
					Path: u.Path, Reason: u.Reason, Resources: len(f.resources),
				})
			}
		}
	}
	return list
}

func compareUnapplied(x, y UnappliedField) int {
	return cmp.Or(cmp.Compare(x.Type, y.Type), cmp.Compare(x.Field, y.Field))
}
