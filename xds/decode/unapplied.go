package decode

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// ignoredField is a field that is not applied.
type ignoredField struct {
	fd     protoreflect.FieldDescriptor
	name   string // of the message in fieldTable, a dot, and the name of the field
	reason string
}

// unapplied is a field that is set and not applied: the first path, and the number of
// others.
type unapplied struct {
	*ignoredField
	path string
	more int
}

// problem returns the warning about the field.
func (u *unapplied) problem() Problem {
	reason := u.reason
	if u.more > 0 {
		reason += fmt.Sprintf(" (and %d more like it)", u.more)
	}
	return Problem{Field: text.Clip(u.path), Reason: reason}
}

// unappliedFields are the fields of a resource that are set and not applied, each field
// of a message once.
type unappliedFields struct {
	list  []*unapplied
	known map[*ignoredField]*unapplied
}

// add adds a field. path is called only for its first occurrence.
func (l *unappliedFields) add(f *ignoredField, path func() string) {
	if known := l.known[f]; known != nil {
		known.more++
		return
	}
	if l.known == nil {
		l.known = map[*ignoredField]*unapplied{}
	}
	u := &unapplied{ignoredField: f, path: path()}
	l.known[f] = u
	l.list = append(l.list, u)
}

// addOnce adds a field by its name, unless it is there.
func (l *unappliedFields) addOnce(name, path, reason string) {
	if !slices.ContainsFunc(l.list, func(u *unapplied) bool { return u.name == name }) {
		l.list = append(l.list, &unapplied{ignoredField: &ignoredField{name: name, reason: reason}, path: path})
	}
}

// fields returns the list, or nil if it is empty.
func (l *unappliedFields) fields() []resource.UnappliedField {
	var list []resource.UnappliedField
	for _, u := range l.list {
		list = append(list, resource.UnappliedField{Field: u.name, Path: text.Clip(u.path), Reason: u.reason})
	}
	return list
}
