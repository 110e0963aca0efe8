package decode

import (
	"cmp"
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

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// logicalDNS ends the names of messages within the load_assignment of a Cluster of
// type LOGICAL_DNS.
const logicalDNS = " (LOGICAL_DNS)"

// FieldUse is what lbd does with one field of a resource that is written by hand.
type FieldUse struct {
	Field protoreflect.Name
	// Applied is true for a field that is applied, perhaps depending on the rest of
	// the resource; Words then say when. A field that is not applied causes a
	// warning; Words say what lbd does instead, and may be empty.
	Applied bool
	Words   string

	descriptor protoreflect.FieldDescriptor
}

// messageFields are the uses of the fields of one message, in the order of declaration.
type messageFields struct {
	message string
	uses    []FieldUse
}

// fieldUses returns what fieldTable says. TestEveryFieldIsClassified finds names in it
// that do not exist.
var fieldUses = sync.OnceValue(func() []messageFields {
	var all []messageFields
	var md protoreflect.MessageDescriptor
	for line := range strings.Lines(strings.ReplaceAll(fieldTable, "\n    ", " ")) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "  ") {
			name, _, _ := strings.Cut(line, " ")
			d, _ := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
			md, _ = d.(protoreflect.MessageDescriptor)
			all = append(all, messageFields{message: line})
			continue
		}
		fields, words, _ := strings.Cut(line[3:], ": ")
		m := &all[len(all)-1]
		for name := range strings.FieldsSeq(fields) {
			fd := md.Fields().ByName(protoreflect.Name(name))
			m.uses = append(m.uses, FieldUse{fd.Name(), line[2] != '-', words, fd})
		}
		slices.SortStableFunc(m.uses, func(a, b FieldUse) int { return cmp.Compare(a.descriptor.Index(), b.descriptor.Index()) })
	}
	return all
})

// FieldTable calls yield with each message that lbd reads and the uses of its
// fields, in the order of their declaration.
func FieldTable(yield func(message string, uses []FieldUse) bool) {
	for _, m := range fieldUses() {
		if !yield(m.message, m.uses) {
			return
		}
	}
}

// fieldPlan is what a walk over a message has to look at.
type fieldPlan struct {
	ignored []*ignoredField
	nested  []nestedField
	// endpoints is true for the plan of an LbEndpoint of an assignment.
	endpoints bool
}

// nestedField is an applied field with messages that have something to look at.
type nestedField struct {
	fd   protoreflect.FieldDescriptor
	plan *fieldPlan
}

// fieldPlans returns the plans of all messages in fieldTable, by their name there.
var fieldPlans = sync.OnceValue(func() map[string]*fieldPlan {
	uses, plans := maps.Collect(FieldTable), map[string]*fieldPlan{}
	var plan func(message string) *fieldPlan
	plan = func(message string) *fieldPlan {
		if made, ok := plans[message]; ok {
			return made
		}
		made := &fieldPlan{endpoints: message == string(nameOf(&endpointv3.LbEndpoint{}))}
		plans[message] = made
		_, variant, _ := strings.Cut(message, " ")
		for _, use := range uses[message] {
			held := messageIn(use.descriptor)
			switch {
			case !use.Applied:
				f := &ignoredField{fd: use.descriptor, name: message + "." + string(use.Field), reason: "is not applied"}
				if use.Words != "" {
					f.reason += ": " + use.Words
				}
				made.ignored = append(made.ignored, f)
			case use.Words == "" && held != nil:
				inner := string(held.FullName())
				if uses[inner+" "+variant] != nil {
					inner += " " + variant
				}
				if p := plan(inner); len(p.ignored) > 0 || len(p.nested) > 0 {
					made.nested = append(made.nested, nestedField{use.descriptor, p})
				}
			}
		}
		return made
	}
	for message := range uses {
		plan(message)
	}
	return plans
})

// fields warns of the fields of m, at a path, and of the messages in it that are not
// applied. A stored resource got these warnings when it was pushed, or when a management
// server sent it.
func (r *report) fields(m proto.Message, at string) { r.fieldsAs(m, at, "") }

// fieldsAs is fields with a variant of the tables, such as logicalDNS.
func (r *report) fieldsAs(m proto.Message, at, variant string) {
	if r.Stored {
		return
	}
	plan := fieldPlans()[string(nameOf(m))+variant]
	if plan == nil {
		return
	}
	w := fieldWalk{report: r, at: at}
	w.message(m.ProtoReflect(), plan, make(path, 0, 16))
}

// fieldWalk visits the messages that are reached through applied fields.
type fieldWalk struct {
	*report
	at string
}

func (w *fieldWalk) message(m protoreflect.Message, plan *fieldPlan, p path) {
	if plan.endpoints {
		if e, ok := m.Interface().(*endpointv3.LbEndpoint); ok && plainEndpoint(e) {
			return
		}
	}
	for _, f := range plan.ignored {
		if m.Has(f.fd) {
			w.unapplied.add(f, func() string { return join(within(w.at, p.String()), string(f.fd.Name())) })
		}
	}
	for _, n := range plan.nested {
		if m.Has(n.fd) {
			eachMessage(m, n.fd, p, func(inner protoreflect.Message, p path) { w.message(inner, n.plan, p) })
		}
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

// ignoredField is a field that is not applied.
type ignoredField struct {
	fd     protoreflect.FieldDescriptor
	name   string // of the message in fieldTable, a dot, and the name of the field
	reason string
}

// unapplied is a field that is set and not applied: the first path, and how many others.
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

// unappliedFields are the unapplied fields of a resource, each field of a message once.
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
