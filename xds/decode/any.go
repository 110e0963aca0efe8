package decode

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

const anyName protoreflect.FullName = "google.protobuf.Any"

// resolve returns a new message of a type that is linked in, or nil.
func resolve(url string) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.New().Interface()
}

// shortType returns the last word of a type URL, such as "Cluster".
func shortType(url string) string {
	return url[strings.LastIndexAny(url, "./")+1:]
}

// carries reads the contents of an Any into m.
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

// binaryField returns the first value of a field that is a string, bytes or a message, or
// nil.
func binaryField(body []byte, number protowire.Number) []byte {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeField(body)
		if n < 0 {
			return nil
		}
		if num == number && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(body)
			value, _ := protowire.ConsumeBytes(body[tag:])
			return value
		}
		body = body[n:]
	}
	return nil
}
