package decode

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// read reads body into m, in any format and envelope. It reports unknown fields and enum
// values.
func read(r *report, body []byte, f Format, m proto.Message) error {
	var err error
	switch f {
	case FormatProtobuf:
		err = readBinary(r, body, m)
	case FormatYAML:
		if body, err = fromYAML(body); err == nil {
			err = readJSON(r, body, FormatYAML, m)
		}
	default:
		err = readJSON(r, body, FormatJSON, m)
	}
	// A body of another type could be read as an empty resource, and remove everything.
	if err == nil && r.byHand && !r.unknown.empty() && isEmpty(m) {
		rejectOtherType(r)
	}
	return err
}

// rejectOtherType rejects a resource with only unknown fields.
func rejectOtherType(r *report) {
	for _, other := range types {
		md := newMessage(other).ProtoReflect().Descriptor()
		if !slices.ContainsFunc(r.unknown.list, func(p Problem) bool { return fieldNamed(md, p.Field) == nil }) {
			r.unknown = problemList{}
			r.reject("", "holds no field of a %s: is it a %s?", r.key.Type, other)
			return
		}
	}
	r.unknown.list = slices.DeleteFunc(r.unknown.list, func(p Problem) bool { return !strings.Contains(p.Reason, didYouMean) })
	r.reject("", "holds no field of a %s: is it a resource of another type?", r.key.Type)
}

// fromYAML converts one YAML document to JSON.
func fromYAML(body []byte) ([]byte, error) {
	body, err := text.FromYAML(body)
	return body, textError(FormatYAML, err)
}

// textError converts an error of package text about a body in a format.
func textError(f Format, err error) error {
	e, ok := errors.AsType[*text.Error](err)
	switch {
	case !ok:
		return err
	case e.TooLarge:
		return &SizeError{f, e.Reason}
	default:
		return &SyntaxError{Format: f, Line: e.Line, Reason: e.Reason}
	}
}
