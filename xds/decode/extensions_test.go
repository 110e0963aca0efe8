package decode_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// A Cluster with messages that are not linked in, one of them in another one's Any.
func extended(options, buffer string) string {
	const name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	return eds(`"typed_extension_protocol_options":{"` + name + `":{"@type":"type.googleapis.com/` + name + `",` + options +
		`"http_filters":[{"name":"buffer","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.buffer.v3.` + buffer + `}},` +
		`{"name":"codec","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"}}]}}`)
}

func TestExtensionsInEveryFormat(t *testing.T) {
	testFormats(t, resource.TypeCluster, extended(
		`"explicit_http_config":{"http2_protocol_options":{"max_concurrent_streams":7}},"upstream_http_protocol_options":{"auto_sni":true},`,
		`Buffer","max_request_bytes":8192`))
}

func TestMistakesInExtensions(t *testing.T) {
	const at = `typed_extension_protocol_options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"].`
	for name, c := range map[string]struct{ options, buffer, want string }{
		"unknown field":     {`"upstream_http_protocol_options":{"auto_snii":true},`, `Buffer"`, at + "upstream_http_protocol_options.auto_snii: unknown field (did you mean auto_sni?)"},
		"in another's Any":  {"", `Buffer","max_request_byte":1`, at + "http_filters[0].typed_config.max_request_byte: unknown field (did you mean max_request_bytes?)"},
		"unknown enum":      {`"explicit_http_config":{"http_protocol_options":{"header_key_format":{},"override_stream_error_on_invalid_http_message":7}},`, `Buffer"`, at + "explicit_http_config.http_protocol_options.override_stream_error_on_invalid_http_message"},
		"unknown extension": {"", `Bufer"`, at + `http_filters[0].typed_config.@type: is "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Bufer", a type that lbd does not know`},
		"wrong kind":        {"", `Buffer","max_request_bytes":{}`, at + "http_filters[0].typed_config.max_request_bytes"},
	} {
		_, err := decode.One(resource.TypeCluster, []byte(extended(c.options, c.buffer)), decode.Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestExtensionsInProtobuf: unknown fields are reported, and come last in what is kept.
func TestExtensionsInProtobuf(t *testing.T) {
	const http = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
	unknown, known := []byte{0xf8, 0x3f, 1}, []byte{0x0a, 2, 8, 7} // 1023: 1, and max_request_bytes: 7
	filter, err := proto.Marshal(&hcmv3.HttpFilter{ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: &anypb.Any{
		TypeUrl: "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer", Value: slices.Concat(unknown, known),
	}}})
	noError(t, err)
	body, err := proto.Marshal(&clusterv3.Cluster{
		Name: "orders", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{}}},
		TypedExtensionProtocolOptions: map[string]*anypb.Any{"k": {
			TypeUrl: "type.googleapis.com/" + http, Value: append(protowire.AppendTag(unknown, 6, protowire.BytesType), protowire.AppendBytes(nil, filter)...),
		}},
	})
	noError(t, err)
	got := accept(t, resource.TypeCluster, body, decode.Options{Format: decode.FormatProtobuf})
	const options = `typed_extension_protocol_options["k"]`
	expect(t, "warnings", lines(got.Warnings), []string{
		options + ".1023: unknown field number 1023: ignored",
		options + ".http_filters[0].typed_config.1023: unknown field number 1023: ignored",
		"typed_extension_protocol_options: is not applied: lbd sends no requests",
	})
	if !bytes.Contains(got.Raw, slices.Concat(known, unknown, unknown)) {
		t.Errorf("%x", got.Raw)
	}
}
