package decode

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/test/must"
	"github.com/lbd-dev/lbd/xds/resource"
)

var noError = must.NoError

// largeAssignment returns an assignment of localities with so many endpoints each. The port
// is that of the first endpoint.
func largeAssignment(localities, each int, port uint32) []byte {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "orders"}
	for i := range localities {
		g := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "region", Zone: fmt.Sprintf("zone-%d", i)}, LoadBalancingWeight: wrapperspb.UInt32(1)}
		for k := range each {
			e := &endpointv3.Endpoint{Address: socketAddress(fmt.Sprintf("10.%d.%d.%d", i, k>>8, k&255), port)}
			g.LbEndpoints = append(g.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: e}, HealthStatus: corev3.HealthStatus_HEALTHY})
			port = 8080
		}
		m.Endpoints = append(m.Endpoints, g)
	}
	body, _ := canonical.Marshal(m)
	return body
}

// BenchmarkDecoders compares the decoders with proto.Unmarshal, which does a part of their work.
func BenchmarkDecoders(b *testing.B) {
	for _, size := range []struct{ localities, each int }{{100, 100}, {1, 10_000}, {2, 50}} {
		bodies := [2][]byte{largeAssignment(size.localities, size.each, 1), largeAssignment(size.localities, size.each, 2)}
		decode := func(o Options) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := One(resource.TypeAssignment, bodies[i%2], o); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		name := fmt.Sprintf("%dx%d/", size.localities, size.each)
		b.Run(name+"Unmarshal", func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				noError(b, proto.Unmarshal(bodies[i%2], &endpointv3.ClusterLoadAssignment{}))
			}
		})
		b.Run(name+"reflective", decode(Options{Format: FormatProtobuf, reflective: true}))
		b.Run(name+"one pass", decode(Options{Format: FormatProtobuf}))
		b.Run(name+"one pass, one changed", decode(Options{Format: FormatProtobuf, Previous: previousOf(b, bodies[0])}))
	}
}

// previousOf returns a resource as the previous version of all.
func previousOf(tb testing.TB, body []byte) func(resource.Key) resource.Item {
	tb.Helper()
	d, err := One(resource.TypeAssignment, body, Options{Format: FormatProtobuf})
	noError(tb, err)
	return func(resource.Key) resource.Item { return d.Item }
}
