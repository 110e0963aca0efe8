package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// messageFields says what lbd does with each field of a message. Every field of every
// message that is reached through applied fields is in one of the four lists, so that
// a field that lbd does not apply always causes a warning.
type messageFields struct {
	// message is the full name of the message, with logicalDNS after it where the
	// rules are others than elsewhere.
	message string
	// applied are names of fields, separated by spaces. The messages in them are
	// looked at, too, except those that an Any carries.
	applied string
	// judged are fields that are applied, refused or warned of depending on the rest
	// of the resource, by the code that reads it. The words are for the
	// documentation.
	judged map[protoreflect.Name]string
	// ignored are fields that are not applied, with what lbd does instead; unused are
	// those that need no words.
	ignored map[protoreflect.Name]string
	unused  string
}

// logicalDNS ends the names of messages within the load_assignment of a Cluster of
// type LOGICAL_DNS.
const logicalDNS = " (LOGICAL_DNS)"

// descriptor returns the message's type.
func (f *messageFields) descriptor() (protoreflect.MessageDescriptor, error) {
	name, _, _ := strings.Cut(f.message, " ")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.message, err)
	}
	md, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no message", f.message)
	}
	return md, nil
}

// FieldUse is what lbd does with one field of a resource that is written by hand.
type FieldUse struct {
	Field protoreflect.Name
	// Applied is true for a field that is applied, perhaps depending on the rest of
	// the resource; Words then say when. A field that is not applied causes a
	// warning; Words say what lbd does instead, and may be empty.
	Applied bool
	Words   string
}

// FieldTable calls yield with each message that lbd reads and the uses of its
// fields, in the order of their declaration.
func FieldTable(yield func(message string, uses []FieldUse) bool) {
	for _, list := range [][]messageFields{assignmentFields, clusterFields, routeFields} {
		for _, f := range list {
			md, err := f.descriptor()
			if err != nil || !yield(f.message, f.uses(md)) {
				return
			}
		}
	}
}

// uses lists the fields of the message, which is of type md.
func (f *messageFields) uses(md protoreflect.MessageDescriptor) []FieldUse {
	var uses []FieldUse
	applied, unused := strings.Fields(f.applied), strings.Fields(f.unused)
	for i := range md.Fields().Len() {
		name := md.Fields().Get(i).Name()
		words, ignored := f.ignored[name]
		switch {
		case slices.Contains(applied, string(name)):
			uses = append(uses, FieldUse{Field: name, Applied: true})
		case f.judged[name] != "":
			uses = append(uses, FieldUse{Field: name, Applied: true, Words: f.judged[name]})
		case ignored, slices.Contains(unused, string(name)):
			uses = append(uses, FieldUse{Field: name, Words: words})
		}
	}
	return uses
}

// fieldPlan is what a walk over a message has to look at.
type fieldPlan struct {
	ignored []*ignoredField
	nested  []nestedField
	// endpoints is true for the plan of an LbEndpoint of an assignment.
	endpoints bool
}

// ignoredField is a field that is not applied.
type ignoredField struct {
	fd protoreflect.FieldDescriptor
	// name is the message's name in the tables, a dot, and the field's.
	name   string
	reason string
}

// newIgnoredField returns the field of a message that is called so in the tables.
func newIgnoredField(message string, fd protoreflect.FieldDescriptor, words string) *ignoredField {
	f := &ignoredField{fd: fd, name: message + "." + string(fd.Name()), reason: "is not applied"}
	if words != "" {
		f.reason += ": " + words
	}
	return f
}

// nestedField is an applied field with messages that have something to look at.
type nestedField struct {
	fd   protoreflect.FieldDescriptor
	plan *fieldPlan
}

// fieldPlans are the plans of all messages in the tables, by their name there.
var fieldPlans = sync.OnceValue(func() map[string]*fieldPlan {
	p := planner{tables: map[string]*messageFields{}, plans: map[string]*fieldPlan{}}
	for _, list := range [][]messageFields{assignmentFields, clusterFields, routeFields} {
		for i := range list {
			p.tables[list[i].message] = &list[i]
		}
	}
	for name := range p.tables {
		p.plan(name)
	}
	return p.plans
})

type planner struct {
	tables map[string]*messageFields
	plans  map[string]*fieldPlan
}

// plan makes the plan of a message, nil if the tables do not have it.
func (p *planner) plan(name string) *fieldPlan {
	if made, ok := p.plans[name]; ok {
		return made
	}
	table := p.tables[name]
	if table == nil {
		return nil
	}
	made := &fieldPlan{endpoints: name == string(nameOf(&endpointv3.LbEndpoint{}))}
	p.plans[name] = made
	md, err := table.descriptor()
	if err != nil {
		return made // TestEveryFieldIsClassified fails
	}
	_, variant, _ := strings.Cut(name, " ")
	for _, use := range table.uses(md) {
		fd := md.Fields().ByName(use.Field)
		switch {
		case !use.Applied:
			made.ignored = append(made.ignored, newIgnoredField(name, fd, use.Words))
		case use.Words == "" && messageIn(fd) != nil:
			inner := string(messageIn(fd).FullName())
			if _, ok := p.tables[inner+" "+variant]; ok && variant != "" {
				inner += " " + variant
			}
			if plan := p.plan(inner); plan != nil && (len(plan.ignored) > 0 || len(plan.nested) > 0) {
				made.nested = append(made.nested, nestedField{fd, plan})
			}
		}
	}
	return made
}

// messageIn returns the type of the messages that a field holds, or nil.
func messageIn(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
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

// unapplied is a field that is set and not applied: where it is set first, and how
// often it is set elsewhere.
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
	return Problem{Field: clip(u.path), Reason: reason}
}

// unappliedFields returns the fields that fields found.
func (v *verdict) unappliedFields() []UnappliedField {
	if len(v.unappliedList) == 0 {
		return nil
	}
	list := make([]UnappliedField, len(v.unappliedList))
	for i, u := range v.unappliedList {
		list[i] = UnappliedField{Field: u.name, Path: clip(u.path), Reason: u.reason}
	}
	return list
}

// fields warns of the fields of m, which stands at a path, and of the messages in it
// that are not applied. A resource that is stored got these warnings when it was pushed,
// or when a management server sent it.
func (v *verdict) fields(m proto.Message, at string) { v.fieldsAs(m, at, "") }

// fieldsAs is fields with a variant of the tables, such as logicalDNS.
func (v *verdict) fieldsAs(m proto.Message, at, variant string) {
	if v.stored {
		return
	}
	plan := fieldPlans()[string(nameOf(m))+variant]
	if plan == nil {
		return
	}
	w := fieldWalk{verdict: v, at: at, path: make(path, 0, 16)}
	w.message(m.ProtoReflect(), plan)
}

// fieldWalk visits the messages that are reached through applied fields.
type fieldWalk struct {
	*verdict
	at   string
	path path
}

func (w *fieldWalk) message(m protoreflect.Message, plan *fieldPlan) {
	if plan.endpoints {
		if e, ok := m.Interface().(*endpointv3.LbEndpoint); ok && plainEndpoint(e) {
			return
		}
	}
	for _, f := range plan.ignored {
		if m.Has(f.fd) {
			w.found(f)
		}
	}
	for i := range plan.nested {
		n := &plan.nested[i]
		if !m.Has(n.fd) {
			continue
		}
		up := w.path
		w.path = up.field(n.fd)
		switch value := m.Get(n.fd); {
		case n.fd.IsList():
			list := value.List()
			for i := range list.Len() {
				w.path = w.path[:len(up)+1].at(i)
				w.message(list.Get(i).Message(), n.plan)
			}
		case n.fd.IsMap():
			entries := value.Map()
			keys := map[string]protoreflect.MapKey{}
			entries.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				keys[k.String()] = k
				return true
			})
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				w.path = w.path[:len(up)+1].key(k)
				w.message(entries.Get(keys[k]).Message(), n.plan)
			}
		default:
			w.message(value.Message(), n.plan)
		}
		w.path = up
	}
}

// plainEndpoint reports whether an endpoint has no field that is not applied. A push
// has thousands of them, and reflection takes a tenth of the time to read it.
func plainEndpoint(m *endpointv3.LbEndpoint) bool {
	e := m.GetEndpoint()
	s := e.GetAddress().GetSocketAddress()
	return len(m.GetMetadata().GetTypedFilterMetadata()) == 0 && len(e.GetAdditionalAddresses()) == 0 &&
		e.GetHealthCheckConfig() == nil && e.GetObservabilityName() == "" &&
		s.GetProtocol() == corev3.SocketAddress_TCP && s.GetResolverName() == "" && !s.GetIpv4Compat() && s.GetNetworkNamespaceFilepath() == ""
}

// found adds a field that is set and not applied. Only the first of its kind is
// written out.
func (w *fieldWalk) found(f *ignoredField) {
	if known := w.unapplied[f]; known != nil {
		known.more++
		return
	}
	if w.unapplied == nil {
		w.unapplied = map[*ignoredField]*unapplied{}
	}
	u := &unapplied{ignoredField: f, path: join(within(w.at, w.path.String()), string(f.fd.Name()))}
	w.unapplied[f] = u
	w.unappliedList = append(w.unappliedList, u)
}
