package decode

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

// anyName is the message that carries others.
const anyName protoreflect.FullName = "google.protobuf.Any"

// anyOf returns m, which is an Any.
func anyOf(m protoreflect.Message) *anypb.Any {
	a, _ := m.Interface().(*anypb.Any)
	return a
}

// resolve returns a new message of a type that is linked in, or nil.
func resolve(url string) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.New().Interface()
}

// shortType is the last word of a type URL: "Cluster" for
// "type.googleapis.com/envoy.config.cluster.v3.Cluster".
func shortType(url string) string {
	return url[strings.LastIndexAny(url, "./")+1:]
}

// carries reads what an Any carries into m.
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
