package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// readJSON reads body, which is JSON, into m. f is the format that the body had before.
//
// protojson stops at the first unknown field, or ignores them all. So a body that it
// accepts, which is usual, is read once; any other is walked to report its unknown fields,
// and then read again without them.
func readJSON(r *report, body []byte, f Format, m proto.Message) error {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(bytes.TrimSpace(body)) == 0 {
		return &SyntaxError{Format: f, Reason: "the body is empty"}
	}
	outline, err := text.Skim(body, MaxJSONEntries, MaxExtensionEntries)
	if err != nil {
		return textError(f, err)
	}
	for _, url := range outline.Large {
		if isExtension(resolve(url)) {
			return &SizeError{f, fmt.Sprintf("a %s has more than %d entries", shortType(url), MaxExtensionEntries)}
		}
	}
	root := jsonEnvelope(outline, m)
	if err := (protojson.UnmarshalOptions{Resolver: anyTypes}).Unmarshal(body, root); err != nil {
		if err := rereadJSON(r, body, f, root, err); err != nil {
			return err
		}
	}
	if root != m {
		body, err := unwrap(r, root)
		if err != nil {
			return err
		}
		return unmarshal(body, m)
	}
	return nil
}

// rereadJSON reads what protojson rejected with first, and reports unknown fields and
// enum values.
func rereadJSON(r *report, body []byte, f Format, root proto.Message, first error) error {
	md := root.ProtoReflect().Descriptor()
	var tree any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return jsonError(body, f, md, first)
	}
	r.pause()
	w := jsonWalk{report: r}
	w.value(tree, md, "")
	if w.rewritten {
		var err error
		if body, err = json.Marshal(tree); err != nil {
			return jsonError(body, f, md, first)
		}
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true, Resolver: anyTypes}).Unmarshal(body, root); err != nil {
		e := jsonError(body, f, md, err)
		if w.rewritten {
			e.Line, e.Column = 0, 0
		}
		return e
	}
	return nil
}

// The forms of protojson's errors, whose first words vary on purpose from build to build.
var (
	jsonPlace = regexp.MustCompile(`^(?:syntax error )?\(line (\d+):(\d+)\): `)
	jsonField = regexp.MustCompile(`^invalid value for (\w+) field \S+: `)
)

// jsonError converts protojson's error about body, which was read as a message of type md.
func jsonError(body []byte, f Format, md protoreflect.MessageDescriptor, err error) *SyntaxError {
	e := &SyntaxError{Format: f, Reason: plain(err)}
	at := len(body)
	if place := jsonPlace.FindStringSubmatch(e.Reason); place != nil {
		e.Reason = e.Reason[len(place[0]):]
		e.Line, _ = strconv.Atoi(place[1])
		e.Column, _ = strconv.Atoi(place[2])
		at = text.Offset(body, e.Line, e.Column)
	}
	var shape jsonShape
	e.Field, shape = jsonFieldAt(body, at, md)
	switch {
	case strings.Contains(e.Reason, "unexpected EOF"):
		e.Reason = "the body is cut short"
		e.Line, e.Column = text.Position(body, len(body))
	case jsonField.MatchString(e.Reason):
		kind := jsonField.FindStringSubmatch(e.Reason)
		if e.Reason = e.Reason[len(kind[0]):] + " is no " + kind[1]; kind[1] == "string" {
			e.Reason += ": put it in quotes"
			break
		}
		fallthrough
	case strings.HasPrefix(e.Reason, "invalid google.protobuf.Duration"):
		if wanted := shape.kind(); wanted != "" {
			e.Reason += ": write " + wanted
		}
	case strings.HasPrefix(e.Reason, "unexpected token "):
		if wanted := shape.kind(); wanted != "" {
			e.Reason += ", where " + wanted + " is wanted"
		}
	}
	e.Field, e.Reason = text.Clip(e.Field), text.Clip(e.Reason)
	if f == FormatYAML {
		// The position is one in the JSON that the YAML was converted to.
		e.Line, e.Column = 0, 0
	}
	return e
}

// jsonFieldAt returns the field of a message of type md at an offset of the JSON text body,
// and the shape that a value there must have.
func jsonFieldAt(body []byte, at int, md protoreflect.MessageDescriptor) (field string, shape jsonShape) {
	shape = jsonShape{message: md}
	at = min(at, len(bytes.TrimSpace(body))-1) // of a body that is cut short, its end
	for {
		space := len(body) - len(bytes.TrimLeft(body, " \t\r\n"))
		body, at = body[space:], at-space
		if at <= 0 || len(body) == 0 || body[0] != '{' && body[0] != '[' {
			return field, shape
		}
		members := text.Members(body)
		isList := body[0] == '['
		if md := shape.object(); md != nil && md.FullName() == anyName {
			shape = shapeOf(members.Text("@type"))
		}
		i := len(members) - 1
		for i >= 0 && members[i].At > at {
			i--
		}
		switch {
		case i >= 0 && (at < members[i].ValueAt+len(members[i].Value) || len(members[i].Value) == 0):
		case isList:
			return element(field, i+1), shape.element()
		default:
			return field, jsonShape{}
		}
		m := members[i]
		switch {
		case isList:
			field, shape = element(field, i), shape.element()
		case m.Quoted == nil: // not a name
			return field, jsonShape{}
		default:
			field, shape = shape.member(field, m.Name)
		}
		if at < m.ValueAt && len(m.Value) > 0 {
			return field, jsonShape{}
		}
		body, at = m.Value, at-m.ValueAt
	}
}
