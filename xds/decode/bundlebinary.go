package decode

import (
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lbd-dev/lbd/xds/resource"
)

func (d *bundling) binary(body []byte) error {
	if len(body) == 0 {
		return &SyntaxError{Format: FormatProtobuf, Reason: "the body is empty"}
	}
	if d.options.Bare && !hasBinaryEnvelope(body) {
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
	v := d.begin()
	w := binaryWalk{report: v}
	w.unknowns(response.ProtoReflect().GetUnknown(), nil)
	// A Cluster without an envelope could be read as a response without resources.
	if len(list) == 0 && !v.unknown.empty() {
		v.reject("resources", "is absent, and there are fields that no DiscoveryResponse has: is it a resource without one?")
	}
	d.end(v, "")
	for i, a := range list {
		at := element("resources", i)
		v := d.begin()
		inner, _, err := wrappedResource(v, a)
		d.end(v, at)
		if err != nil {
			d.reject(at, "%s", err.Error())
			continue
		}
		if inner != a {
			at = within(at, "resource")
		}
		name := binaryName(inner.GetValue())
		if t := d.typed(inner.GetTypeUrl(), name, at); t != "" {
			if err := d.binaryResource(at, resource.Key{Type: t, Name: name}, inner.GetValue()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *bundling) binaryResource(at string, k resource.Key, body []byte) error {
	if err := binarySize(body, newMessage(k.Type).ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
		return err
	}
	return d.item(at, k, func(v *report, it *resource.Item) error { return decodeBinary(v, it, body) })
}

func (d *bundling) bareBinary(body []byte) error {
	t, err := binaryType(body)
	if err != nil {
		return err
	}
	if t == "" {
		d.reject("", "could be more than one of "+aTypes+": put it into a DiscoveryResponse, whose Any names the type")
		return nil
	}
	return d.binaryResource("", resource.Key{Type: t, Name: binaryName(body)}, body)
}

// binaryType returns the type as which a resource can be read with the fewest misfits;
// none if that is not unique.
func binaryType(body []byte) (best resource.Type, err error) {
	fewest := -1
	for _, t := range types {
		m := newMessage(t)
		if err := binarySize(body, m.ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
			return "", err
		}
		if limited.Unmarshal(body, m) != nil {
			continue
		}
		switch n := misfits(m.ProtoReflect()); {
		case fewest < 0 || n < fewest:
			best, fewest = t, n
		case n == fewest:
			best = ""
		}
	}
	return best, nil
}

// misfits counts the unknown fields in m, and the strings that are none: they may be a
// message of another type.
func misfits(m protoreflect.Message) int {
	n := 0
	for range binaryFields(m.GetUnknown()) {
		n++
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

// binaryName returns the probable name of a resource, which is field 1 of all types.
func binaryName(body []byte) string {
	if name := string(binaryField(body, 1)); badName(name) == "" {
		return name
	}
	return ""
}
