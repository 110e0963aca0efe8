package decode

import (
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

const (
	discoveryResponseURL = typeURLPrefix + "envoy.service.discovery.v3.DiscoveryResponse"
	wrapperURL           = typeURLPrefix + "envoy.service.discovery.v3.Resource"
)

// v3URL returns a type URL; instead of one of xDS v2, which a text may have, that of the same resource. v3 has taken
// fields away and added others, but those of a name have the same meaning.
func v3URL(url string) string {
	if name, v2 := strings.CutPrefix(url, typeURLPrefix+"envoy.api.v2."); v2 && resource.Type(name).URL() != "" {
		return resource.Type(name).URL()
	}
	return url
}

// wrappedResource returns the contents of a Resource, and its name; a itself if it is none. It warns of what is not
// applied of a Resource.
func wrappedResource(r *report, a *anypb.Any) (inner *anypb.Any, name string, err error) {
	if a.GetTypeUrl() != wrapperURL {
		return a, "", nil
	}
	var wrapper discoveryv3.Resource
	if err := unmarshal(a.GetValue(), &wrapper); err != nil {
		return nil, "", err
	}
	r.fields(&wrapper, "")
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
	a, _, err := wrappedResource(r, a)
	if err != nil {
		return nil, err
	}
	url := v3URL(a.GetTypeUrl())
	if url != a.GetTypeUrl() {
		r.note(field, "is %q, of xDS v2: read as %s", a.GetTypeUrl(), url)
	}
	if url != r.key.Type.URL() {
		// An unreadable type is reported already.
		if url != "" || r.err() == nil {
			r.reject(field, "is %q, where a %s is wanted (%s)", url, r.key.Type, r.key.Type.URL())
		}
		return nil, r.err()
	}
	return a.GetValue(), nil
}
