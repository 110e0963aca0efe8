package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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
	body, err := protojson.MarshalOptions{UseProtoNames: true, Resolver: anyTypes}.Marshal(m)
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
// which [All] reads, in a format: in parts, so that a large response is never copied. Equal
// resources give equal text. It calls pause between resources, unless that is nil, and ends with its error.
func RenderBundle(version string, resources []resource.Item, f Format, pause func() error) ([][]byte, error) {
	whole := &discoveryv3.DiscoveryResponse{VersionInfo: version}
	if len(resources) == 0 {
		body, err := renderMessage(whole, f, "no resources")
		return [][]byte{body}, err
	}
	head, separator, tail, err := frame(whole, f)
	if err != nil {
		return nil, err
	}
	parts := append(make([][]byte, 0, 2*len(resources)+1), head)
	for i, r := range resources {
		if pause != nil {
			if err := pause(); err != nil {
				return nil, err
			}
		}
		if i > 0 && len(separator) > 0 {
			parts = append(parts, separator)
		}
		one := &discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: r.Key.Type.URL(), Value: r.Raw}}}
		body, err := renderMessage(one, f, "resource "+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		parts = append(parts, resourceOf(body, f))
	}
	return append(parts, tail), nil
}

// renderMessage is renderText for every format.
func renderMessage(m proto.Message, f Format, what string) ([]byte, error) {
	if f != FormatProtobuf {
		return renderText(m, f, what)
	}
	raw, err := canonical.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", what, err)
	}
	return raw, nil
}

// What is around the elements of a list that has the name resources and is the only field.
const (
	jsonListHead, jsonListTail = "{\n  \"resources\": [\n", "\n  ]\n}\n"
	yamlListHead               = "resources:\n"
)

// frame returns what precedes, separates and follows the resources of a response, of which
// m has the other fields. YAML has fields in the order of their names. Fields of protobuf
// can be concatenated.
func frame(m proto.Message, f Format) (head, separator, tail []byte, err error) {
	body, err := renderMessage(m, f, "a response")
	switch f {
	case FormatProtobuf:
		return body, nil, nil, err
	case FormatYAML:
		return []byte(yamlListHead), nil, body, err
	default:
		head = append(bytes.TrimSuffix(body, []byte("\n}\n")), strings.Replace(jsonListHead, "{", ",", 1)...)
		return head, []byte(",\n"), []byte(jsonListTail), err
	}
}

// resourceOf returns the text of the resource in a response that has one resource and no other field.
func resourceOf(body []byte, f Format) []byte {
	switch f {
	case FormatProtobuf:
		return body
	case FormatYAML:
		return bytes.TrimPrefix(body, []byte(yamlListHead))
	default:
		body = bytes.TrimSuffix(bytes.TrimPrefix(body, []byte(jsonListHead)), []byte(jsonListTail))
		return bytes.Clone(body) // its buffer is larger
	}
}
