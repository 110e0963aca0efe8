package decode

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

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
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeTag(body)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(num, typ, body[n:])
		if size < 0 {
			return
		}
		if c.left--; c.left < 0 {
			return
		}
		field := body[n : n+size]
		body = body[n+size:]
		if typ != protowire.BytesType {
			continue
		}
		value, _ := protowire.ConsumeBytes(field)
		switch {
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
	if t, err := protoregistry.GlobalTypes.FindMessageByURL(string(url)); err == nil {
		c.anys++
		c.message(carried, t.Descriptor(), 0)
		c.anys--
	}
}
