package decode

import (
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// read reads body into m, in whichever format and envelope. It reports unknown
// fields and enum values.
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
	// A body of another kind would pass for an empty resource, and take away
	// all that is there.
	if err == nil && r.byHand && !r.unknown.empty() && isEmpty(m) {
		rejectOtherType(r)
	}
	return err
}

// rejectOtherType refuses a resource that has no field of its type, only unknown
// ones.
func rejectOtherType(r *report) {
	for _, other := range types {
		m, err := newMessage(other)
		if err == nil && !slices.ContainsFunc(r.unknown.list, func(p Problem) bool {
			return fieldNamed(m.ProtoReflect().Descriptor(), p.Field) == nil
		}) {
			r.unknown = problemList{}
			r.reject("", "holds no field of a %s: is it a %s?", r.key.Type, other)
			return
		}
	}
	r.unknown.list = slices.DeleteFunc(r.unknown.list, func(p Problem) bool { return !strings.Contains(p.Reason, didYouMean) })
	r.reject("", "holds no field of a %s: is it a resource of another type?", r.key.Type)
}

// fromYAML turns one YAML document into JSON.
func fromYAML(body []byte) ([]byte, error) {
	body, err := text.FromYAML(body)
	return body, textError(FormatYAML, err)
}

// textError makes the error of package text one about a body in a format.
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
