package resource

import (
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	anyName              protoreflect.FullName = "google.protobuf.Any"
	discoveryResponseURL                       = typeURLPrefix + "envoy.service.discovery.v3.DiscoveryResponse"
	wrapperURL                                 = typeURLPrefix + "envoy.service.discovery.v3.Resource"
)

// jsonEnvelope chooses what to read a JSON object with these names at its top
// into: m itself, the Any that carries it, or the DiscoveryResponse that holds
// it.
func jsonEnvelope(s skimmed, m proto.Message) proto.Message {
	switch {
	case s.resources && !s.typed:
		return &discoveryv3.DiscoveryResponse{}
	case s.typed:
		return &anypb.Any{}
	default:
		return m
	}
}

// binaryEnvelope tells a DiscoveryResponse from a bare resource, whose field 2
// is of another kind: none of it begins as a type URL does, but a virtual host
// that has one for a name.
func binaryEnvelope(body []byte, m proto.Message) proto.Message {
	for rest := body; len(rest) > 0; {
		num, typ, n := protowire.ConsumeField(rest)
		if n < 0 {
			break
		}
		if num == 2 && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(rest)
			value, _ := protowire.ConsumeBytes(rest[tag:])
			if startsWithTypeURL(value) {
				return &discoveryv3.DiscoveryResponse{}
			}
			break
		}
		rest = rest[n:]
	}
	return m
}

// startsWithTypeURL reports whether b begins as an Any with a type URL does.
func startsWithTypeURL(b []byte) bool {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != 1 || typ != protowire.BytesType {
		return false
	}
	url, n := protowire.ConsumeBytes(b[n:])
	return n >= 0 && strings.HasPrefix(string(url), typeURLPrefix)
}

// unwrap takes the one resource out of its envelope into m.
func (v *verdict) unwrap(envelope, m proto.Message) error {
	if a, ok := envelope.(*anypb.Any); ok && a.GetTypeUrl() == discoveryResponseURL {
		envelope = &discoveryv3.DiscoveryResponse{}
		if err := unmarshal(a.GetValue(), envelope); err != nil {
			return err
		}
	}
	a, _ := envelope.(*anypb.Any)
	field := "@type"
	if r, ok := envelope.(*discoveryv3.DiscoveryResponse); ok {
		if n := len(r.GetResources()); n != 1 {
			v.refuse("resources", "holds %d resources, where just one %s is wanted", n, v.key.Type)
			return v.err()
		}
		a = r.GetResources()[0]
		field = "resources[0].@type"
	}
	if a.GetTypeUrl() == wrapperURL {
		var wrapper discoveryv3.Resource
		if err := unmarshal(a.GetValue(), &wrapper); err != nil {
			return err
		}
		a = wrapper.GetResource()
	}
	if url := a.GetTypeUrl(); url != v.key.Type.URL() {
		// An unreadable type is noted already.
		if url != "" || v.err() == nil {
			v.refuse(field, "is %q, where a %s is wanted (%s)", url, v.key.Type, v.key.Type.URL())
		}
		return v.err()
	}
	return unmarshal(a.GetValue(), m)
}

// anyOf returns m, which is an Any.
func anyOf(m protoreflect.Message) *anypb.Any {
	a, _ := m.Interface().(*anypb.Any)
	return a
}

// resolve returns a new message of a type that is linked in, or nil.
func resolve(url string) proto.Message {
	t, err := protoregistry.GlobalTypes.FindMessageByURL(url)
	if err != nil {
		return nil
	}
	return t.New().Interface()
}
