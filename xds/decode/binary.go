package decode

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

// canonical gives equal messages equal bytes.
var canonical = proto.MarshalOptions{Deterministic: true}

// binaryDepth limits the nesting of messages in protobuf to what JSON of text.MaxDepth can
// make: each nested object of a Struct is three messages.
const binaryDepth = 4 * text.MaxDepth

var limited = proto.UnmarshalOptions{RecursionLimit: binaryDepth}

// unwrapBinary returns a resource as protobuf without its envelope, if it has one.
func unwrapBinary(r *report, body []byte) ([]byte, error) {
	if !r.byHand {
		return body, nil
	}
	if len(body) == 0 {
		// A message without fields, but more likely a mistake.
		return nil, &SyntaxError{Format: FormatProtobuf, Reason: "the body is empty"}
	}
	if !hasBinaryEnvelope(body) {
		return body, binarySize(body, newMessage(r.key.Type).ProtoReflect().Descriptor(), MaxProtobufEntries)
	}
	envelope := &discoveryv3.DiscoveryResponse{}
	if err := binarySize(body, envelope.ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
		return nil, err
	}
	if err := unmarshal(body, envelope); err != nil {
		return nil, err
	}
	return unwrap(r, envelope)
}

// walk reports the unknown fields of m, and of all messages in it.
func walk(r *report, m proto.Message) {
	w := binaryWalk{report: r}
	w.message(m.ProtoReflect(), make(path, 0, 16)) // usually deep enough
}

// unmarshal reads body into m. Its error has the position of invalid bytes.
func unmarshal(body []byte, m proto.Message) error {
	err := limited.Unmarshal(body, m)
	if err == nil {
		return nil
	}
	e := &SyntaxError{Format: FormatProtobuf, Reason: "the bytes are no message of this type: " + plain(err)}
	locate(body, 0, 0, m.ProtoReflect().Descriptor(), nil, e)
	return e
}

// locate finds where and why body, at an offset in the whole, cannot be read as a message
// of type md. It reports whether it found anything.
func locate(body []byte, offset, depth int, md protoreflect.MessageDescriptor, p path, e *SyntaxError) bool {
	fail := func(at int, p path, reason string) bool {
		e.Offset, e.Field, e.Reason = at, p.String(), reason
		return true
	}
	if depth > binaryDepth {
		return fail(offset, p, fmt.Sprintf("messages nest deeper than %d", binaryDepth))
	}
	seen := map[protowire.Number]int{}
	for at := 0; at < len(body); {
		num, typ, n := protowire.ConsumeTag(body[at:])
		if n < 0 {
			return fail(offset+at, p, wireReason(n))
		}
		fd := md.Fields().ByNumber(num)
		here := p
		if fd != nil {
			here = p.field(fd)
			if fd.IsList() {
				here = here.at(seen[num])
			}
		}
		seen[num]++
		at += n
		size := protowire.ConsumeFieldValue(num, typ, body[at:])
		if size < 0 {
			return fail(offset+at, here, wireReason(size))
		}
		if fd != nil && typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(body[at : at+size])
			start := offset + at + size - len(value)
			switch {
			case fd.Kind() == protoreflect.MessageKind:
				if locate(value, start, depth+1, fd.Message(), here, e) {
					return true
				}
			case fd.Kind() == protoreflect.StringKind && !utf8.Valid(value):
				return fail(start, here, "the text is not valid UTF-8")
			}
		}
		at += size
	}
	return false
}

func wireReason(n int) string {
	err := protowire.ParseError(n)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the message is cut short"
	}
	return "the bytes are no protobuf: " + plain(err)
}

// binaryWalk visits all messages in a decoded message. It reports unknown fields, and
// brings the contents of Anys into canonical form, as reading JSON does.
type binaryWalk struct {
	*report
	anys int // around the message that is visited
	// messages are the fields of each type that hold messages.
	messages map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor
}

func (w *binaryWalk) message(m protoreflect.Message, p path) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		w.unknowns(unknown, p)
	}
	md := m.Descriptor()
	for _, fd := range w.fields(md) {
		if m.Has(fd) {
			eachMessage(m, fd, p, w.message)
		}
	}
	if md.FullName() == anyName {
		w.carried(m, p)
	}
}

func (w *binaryWalk) fields(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	list, ok := w.messages[md]
	if ok {
		return list
	}
	for i := range md.Fields().Len() {
		if fd := md.Fields().Get(i); messageIn(fd) != nil {
			list = append(list, fd)
		}
	}
	if w.messages == nil {
		w.messages = map[protoreflect.MessageDescriptor][]protoreflect.FieldDescriptor{}
	}
	w.messages[md] = list
	return list
}

// unknowns reports the fields in b, each number once.
func (w *binaryWalk) unknowns(b protoreflect.RawFields, p path) {
	seen := map[protowire.Number]bool{}
	for num := range binaryFields(b) {
		if !seen[num] {
			seen[num] = true
			w.unknownField(p.unknown(num), func() string { return fmt.Sprintf("unknown field number %d", num) })
		}
	}
}

// carried visits the contents of an Any, if lbd knows the type and can read them. Others
// are validated only if they are used.
func (w *binaryWalk) carried(m protoreflect.Message, p path) {
	fields := m.Descriptor().Fields() // an Any in a dynamic message is dynamic, too
	url, value := fields.ByName("type_url"), fields.ByName("value")
	inner := resolve(m.Get(url).String())
	if isExtension(inner) && binarySize(m.Get(value).Bytes(), inner.ProtoReflect().Descriptor(), MaxExtensionEntries) != nil {
		if w.byHand {
			w.reject(p.String(), "has more than %d entries", MaxExtensionEntries)
		}
		return
	}
	if inner == nil || limited.Unmarshal(m.Get(value).Bytes(), inner) != nil {
		return
	}
	if w.anys == text.MaxDepth {
		w.reject(p.String(), "messages within messages nest deeper than %d", text.MaxDepth)
		return
	}
	w.anys++
	w.message(inner.ProtoReflect(), p)
	w.anys--
	body, err := canonical.Marshal(inner)
	if err != nil {
		return
	}
	if a, ok := m.Interface().(*anypb.Any); ok {
		a.Value = body // Set would allocate
	} else {
		m.Set(value, protoreflect.ValueOfBytes(body))
	}
}

// binarySize rejects a message of type md with more entries than limit: it would take too
// much memory.
func binarySize(body []byte, md protoreflect.MessageDescriptor, limit int) error {
	// No entry is shorter than its tag and one byte.
	if len(body) <= 2*limit {
		return nil
	}
	c := binaryCount{left: limit}
	c.message(body, md, 0)
	if c.left < 0 {
		return &SizeError{FormatProtobuf, fmt.Sprintf("the body has more than %d entries", limit)}
	}
	return nil
}

// binaryCount counts the fields of a message and of all messages in it that will be read.
type binaryCount struct {
	left int // negative if there are too many
	anys int // around the message that is counted
}

func (c *binaryCount) message(body []byte, md protoreflect.MessageDescriptor, depth int) {
	if depth > binaryDepth {
		return
	}
	fields := md.Fields()
	isAny := md.FullName() == anyName
	var url, carried []byte
	for num, value := range binaryFields(body) {
		if c.left--; c.left < 0 {
			return
		}
		switch {
		case value == nil:
		case isAny && num == 1:
			url = value
		case isAny && num == 2:
			carried = value
		case len(value) > 0:
			if fd := fields.ByNumber(num); fd != nil && fd.Kind() == protoreflect.MessageKind {
				c.message(value, fd.Message(), depth+1)
			}
		}
	}
	if len(carried) == 0 || c.anys == text.MaxDepth {
		return
	}
	if t, err := anyTypes.FindMessageByURL(string(url)); err == nil {
		c.anys++
		c.message(carried, t.Descriptor(), 0)
		c.anys--
	}
}
