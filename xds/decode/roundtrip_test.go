package decode_test

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

var formats = []decode.Format{decode.FormatJSON, decode.FormatYAML, decode.FormatProtobuf}

// handwritten is an assignment without all that the decoder can fill in.
const handwritten = `
endpoints:
- lb_endpoints:
  - endpoint: {address: {socket_address: {address: h, port_value: 80}}}
  - endpoint: {address: {socket_address: {address: i, port_value: 80}}, hostname: "7"}
    health_status: DRAINING
    metadata: {filter_metadata: {envoy.lb: {hash_key: k, b: [1, {c: null}], a: 0.25}}}
- priority: 1
  locality: {zone: a}
  lb_endpoints:
  - endpoint: {address: {socket_address: {address: j, port_value: 80}}}
    health_status: UNHEALTHY
    load_balancing_weight: 3
- priority: 1
  locality: {zone: b}
  load_balancing_weight: 0
policy:
  drop_overloads:
  - {category: throttle, drop_percentage: {numerator: 200, denominator: HUNDRED}}
`

// What is stored is decoded again at the next start, with the same result.
func TestRawMeansTheSame(t *testing.T) {
	first := accept(t, resource.TypeAssignment, handwritten, decode.Options{Format: decode.FormatYAML, Name: "orders"})
	if got := weights(first.Assignment); got != "@0=1 a@1=1" {
		t.Fatalf("localities %s", got)
	}
	again := accept(t, resource.TypeAssignment, first.Raw, decode.Options{Format: decode.FormatProtobuf})
	if !reflect.DeepEqual(first.Item, again.Item) {
		t.Errorf("%+v, want %+v", again.Item, first.Item)
	}
}

func TestEqualContentHasEqualRawInEveryFormat(t *testing.T) {
	testFormats(t, resource.TypeAssignment, handwritten, envoyFile, "{}")
	testFormats(t, resource.TypeCluster,
		eds(`"metadata":{"filter_metadata":{"lbd":{"connect":"none"},"a":{"z":1,"b":2,"c":{"e":"f","d":"g"}}}}`,
			choose(policies(policy(wrr, `"endpoint_picking_policy":`+policies(policy(roundRobin))))),
			`"connect_timeout":"1.5s","circuit_breakers":{"thresholds":[{"max_requests":0}]}`),
		aggregate(`["b","a","b"]`, choose(policies(within(named("ring_hash_experimental", `{"minRingSize":7,"maxRingSize":9.0e2}`))))),
		dnsSocket(`{"address":"h","port_value":80}`))
}

// testFormats renders bodies in each format, and decodes them again.
func testFormats(t *testing.T, kind resource.Type, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		want := accept(t, kind, body, decode.Options{Format: decode.FormatYAML, Name: nameFor(body), Policies: grpcs})
		for _, f := range formats {
			text, err := decode.Render(kind, want.Raw, f)
			noError(t, err)
			got := accept(t, kind, text, decode.Options{Format: f, Policies: grpcs})
			if !reflect.DeepEqual(got.Item, want.Item) {
				t.Errorf("%s: %+v, want %+v; from\n%s", f, got.Item, want.Item, text)
			}
		}
	}
}

// nameFor is the name to decode a body with: none where it has one.
func nameFor(body string) string {
	if body == handwritten || body == "{}" {
		return "orders"
	}
	return ""
}

// A writer of protobuf may write the map in an Any in any order.
func TestRawDoesNotDependOnTheOrderWithinAnAny(t *testing.T) {
	fields := map[string]any{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		fields[name] = map[string]any{"x": 1, "y": 2}
	}
	content, err := structpb.NewStruct(fields)
	noError(t, err)
	inner := &clusterv3.Cluster{Metadata: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"s": content, "t": content}}}
	raws := map[string]bool{}
	bodies := map[string]bool{}
	for range 20 {
		carried, err := anypb.New(inner)
		noError(t, err)
		body, err := proto.Marshal(&clusterv3.Cluster{
			Name: "orders", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
			Metadata: &corev3.Metadata{TypedFilterMetadata: map[string]*anypb.Any{"m": carried}},
		})
		noError(t, err)
		bodies[string(body)] = true
		d := accept(t, resource.TypeCluster, body, decode.Options{Format: decode.FormatProtobuf})
		raws[string(d.Raw)] = true
	}
	if len(raws) != 1 || len(bodies) == 1 {
		t.Errorf("%d bodies gave %d raws, want one of several", len(bodies), len(raws))
	}
}

func TestRenderGolden(t *testing.T) {
	d := accept(t, resource.TypeAssignment, handwritten, decode.Options{Format: decode.FormatYAML, Name: "orders"})
	for f, name := range map[decode.Format]string{decode.FormatJSON: "assignment.json", decode.FormatYAML: "assignment.yaml"} {
		got, err := decode.Render(resource.TypeAssignment, d.Raw, f)
		noError(t, err)
		want, err := os.ReadFile(filepath.Join("testdata", name))
		noError(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
		}
	}
}

func TestRenderOfWhatIsNotReadable(t *testing.T) {
	carried, err := proto.Marshal(&clusterv3.Cluster{
		Metadata: &corev3.Metadata{TypedFilterMetadata: map[string]*anypb.Any{"m": {TypeUrl: "type.googleapis.com/acme.Thing"}}},
	})
	noError(t, err)
	for _, c := range []struct {
		kind resource.Type
		raw  []byte
	}{{resource.TypeCluster, carried}, {resource.TypeCluster, []byte{0xff}}, {"Thing", nil}} {
		if text, err := decode.Render(c.kind, c.raw, decode.FormatJSON); err == nil {
			t.Errorf("%s rendered as %s", c.kind, text)
		}
		if raw, err := decode.Render(c.kind, c.raw, decode.FormatProtobuf); err != nil || !bytes.Equal(raw, c.raw) {
			t.Errorf("as protobuf: %x, %v", raw, err)
		}
	}
}
