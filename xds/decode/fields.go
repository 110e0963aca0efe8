package decode

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
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
