package decode

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
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
