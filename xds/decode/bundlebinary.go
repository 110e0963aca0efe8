package decode

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/resource"
)

// binary reads a bundle.
func (d *bundling) binary(body []byte) error {
	if len(body) == 0 {
		return &SyntaxError{Format: FormatProtobuf, Reason: "the body is empty"}
	}
	if d.options.Bare && binaryEnvelope(body, nil) == nil {
		return d.bareBinary(body)
	}
	response := &discoveryv3.DiscoveryResponse{}
	if err := binarySize(body, response.ProtoReflect().Descriptor(), 2*MaxProtobufEntries); err != nil {
		return err
	}
	if err := unmarshal(body, response); err != nil {
		return err
	}
	d.bundle.Version = response.GetVersionInfo()
	list := response.GetResources()
	if d.tooMany(len(list)) {
		return nil
	}
	v := d.begin(resource.Key{Type: typeBundle})
	w := binaryWalk{report: v}
	w.unknowns(response.ProtoReflect().GetUnknown())
	// A Cluster without an envelope would pass for a response without resources.
	if len(list) == 0 && !v.unknown.empty() {
		v.reject("resources", "is absent, and there are fields that no DiscoveryResponse has: is it a resource without one?")
	}
	d.end(v, "")
	for i, a := range list {
		if err := d.binaryItem(a.GetTypeUrl(), a.GetValue(), element("resources", i), true); err != nil {
			return err
		}
	}
	return nil
}

// binaryItem reads one resource of a bundle, which stands at a path and may be
// within a Resource.
func (d *bundling) binaryItem(url string, value []byte, at string, wrapped bool) error {
	if url == wrapperURL && wrapped {
		wrapper := &discoveryv3.Resource{}
		if err := unmarshal(value, wrapper); err != nil {
			d.reject(at, "%s", err.Error())
			return nil
		}
		a := wrapper.GetResource()
		return d.binaryItem(a.GetTypeUrl(), a.GetValue(), within(at, "resource"), false)
	}
	name := binaryName(value)
	t := d.typed(url, name, at)
	if t == "" {
		return nil
	}
	return d.item(at, resource.Key{Type: t, Name: name}, readsBinary(value))
}

// bareBinary reads a resource without an envelope.
func (d *bundling) bareBinary(body []byte) error {
	t, err := binaryKind(body)
	if err != nil {
		return err
	}
	if t == "" {
		d.reject("", "could be more than one of "+aTypes+": put it into a DiscoveryResponse, whose Any names the type")
		return nil
	}
	return d.item("", resource.Key{Type: t, Name: binaryName(body)}, readsBinary(body))
}

// readsBinary returns what reads body, a resource of a bundle, unless it is too
// large.
func readsBinary(body []byte) func(*report, proto.Message) error {
	return func(v *report, m proto.Message) error {
		if err := binarySize(body, m.ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
			return err
		}
		return readMessage(v, body, m)
	}
}

// binaryKind tells a resource's type: the one as which it can be read with the
// fewest fields that do not fit; none where that does not tell.
func binaryKind(body []byte) (kind resource.Type, err error) {
	fewest := -1
	for _, t := range types {
		m, err := newMessage(t)
		if err != nil {
			return "", err
		}
		if err := binarySize(body, m.ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
			return "", err
		}
		if limited.Unmarshal(body, m) != nil {
			continue
		}
		switch n := misfits(m.ProtoReflect()); {
		case fewest < 0 || n < fewest:
			kind, fewest = t, n
		case n == fewest:
			kind = ""
		}
	}
	return kind, nil
}

// misfits counts the fields of m, and of all that it holds, that their types do
// not know, and the texts that are none: what is a message elsewhere may be read
// as one.
func misfits(m protoreflect.Message) int {
	n := 0
	for rest := m.GetUnknown(); len(rest) > 0; n++ {
		_, _, size := protowire.ConsumeField(rest)
		if size < 0 {
			break
		}
		rest = rest[size:]
	}
	m.Range(func(fd protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case fd.IsMap():
		case fd.IsList():
			for i := range value.List().Len() {
				n += misfit(fd, value.List().Get(i))
			}
		default:
			n += misfit(fd, value)
		}
		return true
	})
	return n
}

func misfit(fd protoreflect.FieldDescriptor, value protoreflect.Value) int {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return misfits(value.Message())
	case protoreflect.StringKind:
		if unprintable(value.String()) != "" {
			return 1
		}
	}
	return 0
}

// binaryName returns what a resource seems to be called: field 1 is the name of
// all types.
func binaryName(body []byte) string {
	for len(body) > 0 {
		num, typ, n := protowire.ConsumeField(body)
		if n < 0 {
			return ""
		}
		if num == 1 && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(body)
			value, _ := protowire.ConsumeString(body[tag:])
			if badName(value) != "" {
				return ""
			}
			return value
		}
		body = body[n:]
	}
	return ""
}
