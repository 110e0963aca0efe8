package decode

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// didYouMean begins the suggestion in a problem about an unknown field.
const didYouMean = "(did you mean "

// unknownOf returns the reason of a problem: the owner has no such field. suggested is
// the field that was probably meant, or empty.
func unknownOf(owner, suggested string) string {
	if suggested == "" {
		return "unknown field of " + owner
	}
	return "unknown field " + didYouMean + suggested + "?)"
}

// otherNames are other words for fields: those of xDS v2, and of other programs.
var otherNames = map[string][]string{
	"hosts": {"load_assignment", "lb_endpoints"}, "tlscontext": {"transport_socket"}, "weight": {"load_balancing_weight"},
	"health": {"health_status"}, "host": {"address"}, "ip": {"address"}, "servers": {"lb_endpoints"}, "zone": {"locality"}, "region": {"locality"},
}

// suggestField returns the field of md that was probably meant by a name, in
// lowerCamelCase if the name is, or empty. It may be a field of a message in md.
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
	for _, other := range otherNames[strings.ToLower(strings.ReplaceAll(name, "_", ""))] {
		if fd := fieldNamed(md, other); fd != nil {
			return spelled(fd)
		}
	}
	return inner
}
