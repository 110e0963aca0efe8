package decode

import (
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode/text"
)

const (
	discoveryResponseURL = typeURLPrefix + "envoy.service.discovery.v3.DiscoveryResponse"
	wrapperURL           = typeURLPrefix + "envoy.service.discovery.v3.Resource"
)

// wrappedResource returns the contents of a Resource, and its name; a itself if it is none.
func wrappedResource(a *anypb.Any) (inner *anypb.Any, name string, err error) {
	if a.GetTypeUrl() != wrapperURL {
		return a, "", nil
	}
	var wrapper discoveryv3.Resource
	if err := unmarshal(a.GetValue(), &wrapper); err != nil {
		return nil, "", err
	}
	return wrapper.GetResource(), wrapper.GetName(), nil
}

// jsonEnvelope returns the message into which to read a JSON object with these names at its
// top: m itself, the Any that carries it, or the DiscoveryResponse that holds it.
func jsonEnvelope(o text.Outline, m proto.Message) proto.Message {
	switch {
	case o.Typed:
		return &anypb.Any{}
	case o.Resources:
		return &discoveryv3.DiscoveryResponse{}
	default:
		return m
	}
}

// hasBinaryEnvelope distinguishes a DiscoveryResponse from a bare resource, whose field 2
// does not begin as an Any with a type URL does, unless it is a virtual host with such a
// name.
func hasBinaryEnvelope(body []byte) bool {
	resource := binaryField(body, 2)
	num, typ, n := protowire.ConsumeTag(resource)
	if n < 0 || num != 1 || typ != protowire.BytesType {
		return false
	}
	url, n := protowire.ConsumeBytes(resource[n:])
	return n >= 0 && strings.HasPrefix(string(url), typeURLPrefix)
}

// unwrap returns the resource of the report's type that an envelope has.
func unwrap(r *report, envelope proto.Message) ([]byte, error) {
	if a, ok := envelope.(*anypb.Any); ok && a.GetTypeUrl() == discoveryResponseURL {
		envelope = &discoveryv3.DiscoveryResponse{}
		if err := unmarshal(a.GetValue(), envelope); err != nil {
			return nil, err
		}
	}
	a, _ := envelope.(*anypb.Any)
	field := "@type"
	if d, ok := envelope.(*discoveryv3.DiscoveryResponse); ok {
		if n := len(d.GetResources()); n != 1 {
			r.reject("resources", "holds %d resources, where just one %s is wanted", n, r.key.Type)
			return nil, r.err()
		}
		a = d.GetResources()[0]
		field = "resources[0].@type"
	}
	a, _, err := wrappedResource(a)
	if err != nil {
		return nil, err
	}
	if url := a.GetTypeUrl(); url != r.key.Type.URL() {
		// An unreadable type is reported already.
		if url != "" || r.err() == nil {
			r.reject(field, "is %q, where a %s is wanted (%s)", url, r.key.Type, r.key.Type.URL())
		}
		return nil, r.err()
	}
	return a.GetValue(), nil
}
