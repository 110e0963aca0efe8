package decode

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/resource"
)

// typeURLPrefix begins the type URL of every xDS resource.
const typeURLPrefix = "type.googleapis.com/"

// types are the types of resources, in the order in which a target needs them.
var types = [...]resource.Type{resource.TypeListener, resource.TypeRoutes, resource.TypeCluster, resource.TypeAssignment}

// newMessage returns an empty message of a type, or nil if it is none of types.
func newMessage(t resource.Type) proto.Message { return resolve(t.URL()) }

func nameOf(m proto.Message) protoreflect.FullName {
	return m.ProtoReflect().Descriptor().FullName()
}

// isEmpty reports whether m has no field set, unknown ones aside.
func isEmpty(m proto.Message) bool {
	for range set(m) {
		return false
	}
	return true
}

// set yields the names of m's fields that are set, in their order.
func set(m proto.Message) iter.Seq[protoreflect.Name] {
	return func(yield func(protoreflect.Name) bool) {
		r := m.ProtoReflect()
		fields := r.Descriptor().Fields()
		for i := range fields.Len() {
			if r.Has(fields.Get(i)) && !yield(fields.Get(i).Name()) {
				return
			}
		}
	}
}

// messageIn returns the type of the messages that a field holds, or nil.
func messageIn(fd protoreflect.FieldDescriptor) protoreflect.MessageDescriptor {
	if fd.IsMap() {
		return fd.MapValue().Message()
	}
	return fd.Message()
}

// eachMessage calls visit with each message in a field of m that is set, and with its path.
// The path of m is at; its memory is used again.
func eachMessage(m protoreflect.Message, fd protoreflect.FieldDescriptor, at path, visit func(protoreflect.Message, path)) {
	at = at.field(fd)
	switch value := m.Get(fd); {
	case fd.IsList():
		for i := range value.List().Len() {
			visit(value.List().Get(i).Message(), at.at(i))
		}
	case fd.IsMap():
		entries := map[string]protoreflect.Message{}
		for k, v := range value.Map().Range {
			entries[k.String()] = v.Message()
		}
		for _, k := range slices.Sorted(maps.Keys(entries)) {
			visit(entries[k], at.key(k))
		}
	default:
		visit(value.Message(), at)
	}
}

// oneof names the field of a oneof that is set, or nothing.
func oneof(m proto.Message, name protoreflect.Name) string {
	r := m.ProtoReflect()
	if fd := r.WhichOneof(r.Descriptor().Oneofs().ByName(name)); fd != nil {
		return string(fd.Name())
	}
	return ""
}

// fieldNamed finds a field by one of the two names that proto3 JSON takes.
func fieldNamed(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(name)
}

// plain returns the words of an error of the protobuf module, without its
// prefix.
func plain(err error) string {
	return strings.TrimLeftFunc(strings.TrimPrefix(err.Error(), "proto:"), unicode.IsSpace)
}
