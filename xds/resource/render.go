package resource

import (
	"bytes"
	"encoding/json"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Render writes a resource, given as [Decoded] holds it in Raw, in a format:
// indented proto3 JSON with the names of the proto fields, the same as YAML, or
// raw as it is. Equal bytes give equal text. It fails where raw is no resource
// of the type, and in JSON and YAML where the resource carries a message of a
// type that lbd does not know.
func Render(t Type, raw []byte, f Format) ([]byte, error) {
	if f == FormatProtobuf {
		return raw, nil
	}
	m, err := newMessage(t)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("render %s: %s", t, plain(err))
	}
	return renderText(m, f, string(t))
}

// renderText writes m as JSON or YAML; what names it in errors.
func renderText(m proto.Message, f Format, what string) ([]byte, error) {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("render %s as %s: %s; it can be had as protobuf", what, f, plain(err))
	}
	if f == FormatYAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return nil, fmt.Errorf("render %s as %s: %w", what, f, err)
		}
		return text, nil
	}
	// protojson varies its white space from build to build.
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return nil, fmt.Errorf("render %s as %s: %w", what, f, err)
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}

// newMessage returns an empty message of a type.
func newMessage(t Type) (proto.Message, error) {
	switch t {
	case TypeCluster:
		return &clusterv3.Cluster{}, nil
	case TypeAssignment:
		return &endpointv3.ClusterLoadAssignment{}, nil
	case TypeListener:
		return &listenerv3.Listener{}, nil
	case TypeRoutes:
		return &routev3.RouteConfiguration{}, nil
	default:
		return nil, fmt.Errorf("unknown type of resource %q", t)
	}
}
