package decode

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

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

// plain returns the text of an error of the protobuf module without its prefix.
func plain(err error) string {
	return strings.TrimLeftFunc(strings.TrimPrefix(err.Error(), "proto:"), unicode.IsSpace)
}

const anyName protoreflect.FullName = "google.protobuf.Any"

// resolve returns a new message of one of anyTypes, or nil.
func resolve(url string) proto.Message {
	t, err := anyTypes.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.New().Interface()
}

// shortType returns the last word of a type URL, such as "Cluster".
func shortType(url string) string {
	return url[strings.LastIndexAny(url, "./")+1:]
}

func (r *report) carries(a *anypb.Any, m proto.Message, field string) bool {
	if err := proto.Unmarshal(a.GetValue(), m); err != nil {
		r.reject(field, "cannot be read as %s: %s", nameOf(m), plain(err))
		return false
	}
	return true
}

// ownJSON reports whether a message has a JSON form other than an object of its
// fields: durations, wrappers, structs and the like.
func ownJSON(md protoreflect.MessageDescriptor) bool {
	return md.ParentFile().Package() == "google.protobuf" && md.FullName() != anyName
}

// binaryFields yields the fields of a message, up to the first invalid one. The value is nil
// unless it is a string, bytes or a message.
func binaryFields(body []byte) iter.Seq2[protowire.Number, []byte] {
	return func(yield func(protowire.Number, []byte) bool) {
		for len(body) > 0 {
			num, typ, n := protowire.ConsumeField(body)
			if n < 0 {
				return
			}
			var value []byte
			if typ == protowire.BytesType {
				_, _, tag := protowire.ConsumeTag(body)
				value, _ = protowire.ConsumeBytes(body[tag:])
			}
			if !yield(num, value) {
				return
			}
			body = body[n:]
		}
	}
}

// binaryField returns the first value of a string, bytes or message field, or nil.
func binaryField(body []byte, number protowire.Number) []byte {
	for num, value := range binaryFields(body) {
		if num == number && value != nil {
			return value
		}
	}
	return nil
}
