package decode_test

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// large is an assignment of 100 localities with 100 endpoints each.
func large(tb testing.TB) []byte {
	tb.Helper()
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "large"}
	for i := range 100 {
		group := &endpointv3.LocalityLbEndpoints{
			Locality:            &corev3.Locality{Region: "region", Zone: fmt.Sprintf("zone-%d", i)},
			LoadBalancingWeight: wrapperspb.UInt32(1),
		}
		for k := range 100 {
			group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address:       fmt.Sprintf("10.0.%d.%d", i, k),
						PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
					}}},
				}},
				HealthStatus: corev3.HealthStatus_HEALTHY,
			})
		}
		m.Endpoints = append(m.Endpoints, group)
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	noError(tb, err)
	return raw
}

// BenchmarkUnmarshal is what BenchmarkDecodeAssignment/protobuf is measured
// against.
func BenchmarkUnmarshal(b *testing.B) {
	body := large(b)
	b.ReportAllocs()
	for b.Loop() {
		noError(b, proto.Unmarshal(body, &endpointv3.ClusterLoadAssignment{}))
	}
}

func BenchmarkDecodeAssignment(b *testing.B) {
	raw := large(b)
	for _, f := range []decode.Format{decode.FormatProtobuf, decode.FormatJSON, decode.FormatYAML} {
		b.Run(f.String(), func(b *testing.B) {
			body, err := decode.Render(resource.TypeAssignment, raw, f)
			noError(b, err)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode.One(resource.TypeAssignment, body, decode.Options{Format: f}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecodeCluster(b *testing.B) {
	for _, c := range []struct{ name, body string }{
		{"plain", eds()},
		{"full", eds(`"outlier_detection":{"interval":"1s"}`, choose(policies(within(policy(weighted, `"blackout_period":"1s"`)))))},
		{"by name", only(within(named("weighted_round_robin", `{"blackoutPeriod":"1s"}`)))},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := accept(b, resource.TypeCluster, c.body, decode.Options{Policies: grpcs})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode.One(resource.TypeCluster, d.Raw, decode.Options{Format: decode.FormatProtobuf, Policies: grpcs}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReuse(b *testing.B) {
	read := func(body []byte) *resource.Assignment {
		d := accept(b, resource.TypeAssignment, body, decode.Options{Format: decode.FormatProtobuf})
		return d.Assignment
	}
	prev := read(large(b))
	b.Run("same", func(b *testing.B) {
		a := read(large(b))
		b.ReportAllocs()
		for b.Loop() {
			if a.Reuse(prev) != prev {
				b.Fatal("not the same")
			}
		}
	})
	b.Run("one gone", func(b *testing.B) {
		a := read(large(b))
		a.Localities[50].Endpoints = a.Localities[50].Endpoints[1:]
		b.ReportAllocs()
		for b.Loop() {
			if got := a.Reuse(prev); got.Localities[49] != prev.Localities[49] || got.Localities[50] == prev.Localities[50] {
				b.Fatal("not what was expected")
			}
		}
	})
}
