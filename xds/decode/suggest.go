package decode

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// didYouMean begins the suggestion in a problem about an unknown field.
const didYouMean = "(did you mean "

// unknownOf is the reason of a problem: what is called owner has no field of a name.
// suggested is what was probably meant, or empty.
func unknownOf(owner, suggested string) string {
	if suggested == "" {
		return "unknown field of " + owner
	}
	return "unknown field " + didYouMean + suggested + "?)"
}

// suggestField returns the field of md that a name was probably meant to be, in
// lowerCamelCase if the name is written so, or empty. A name that md does not have
// but one of the messages in it does is suggested with its path.
func suggestField(md protoreflect.MessageDescriptor, name string) string {
	names := make([]string, 0, 2*md.Fields().Len())
	spelled := func(fd protoreflect.FieldDescriptor) string {
		if strings.ToLower(name) != name {
			return fd.JSONName()
		}
		return string(fd.Name())
	}
	inner := ""
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		names = append(names, spelled(fd))
		if fd.Kind() != protoreflect.MessageKind || fd.IsList() || fd.IsMap() || ownJSON(fd.Message()) {
			continue
		}
		if within := fieldNamed(fd.Message(), name); within != nil && inner == "" {
			inner = spelled(fd) + "." + spelled(within)
		}
	}
	if own := text.Closest(name, names); own != "" {
		return own
	}
	return inner
}
