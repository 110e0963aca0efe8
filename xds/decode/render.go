package decode

import (
	"bytes"
	"encoding/json"
	"fmt"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/lbd-dev/lbd/xds/decode/text"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Render writes a resource, given as [Decoded].Raw, in a format: indented proto3 JSON with
// the names of the proto fields, the same as YAML, or raw as it is. Equal bytes give equal
// text. It fails if raw is no resource of the type, and in JSON and YAML if the resource
// carries a message of an unknown type.
func Render(t resource.Type, raw []byte, f Format) ([]byte, error) {
	if f == FormatProtobuf {
		return raw, nil
	}
	m := newMessage(t)
	if m == nil {
		return nil, fmt.Errorf("unknown type of resource %q", t)
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("render %s: %s", t, plain(err))
	}
	return renderText(m, f, string(t))
}

// renderText writes m as JSON or YAML; what names it in errors.
func renderText(m proto.Message, f Format, what string) ([]byte, error) {
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("render %s as %s: %s; it can be had as protobuf", what, f, plain(err))
	}
	if f == FormatYAML {
		if body, err = text.ToYAML(body); err != nil {
			return nil, fmt.Errorf("render %s as %s: %w", what, f, err)
		}
		return body, nil
	}
	// protojson varies its white space from build to build.
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		return nil, fmt.Errorf("render %s as %s: %w", what, f, err)
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}

// RenderBundle writes resources, of which it uses Key and Raw, as a DiscoveryResponse,
// which [All] reads, in a format. Equal resources give equal text.
func RenderBundle(version string, resources []resource.Item, f Format) ([]byte, error) {
	m := &discoveryv3.DiscoveryResponse{VersionInfo: version}
	for _, r := range resources {
		m.Resources = append(m.Resources, &anypb.Any{TypeUrl: r.Key.Type.URL(), Value: r.Raw})
	}
	if f == FormatProtobuf {
		raw, err := canonical.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("render %d resources: %w", len(resources), err)
		}
		return raw, nil
	}
	return renderText(m, f, fmt.Sprintf("%d resources", len(resources)))
}
