package decode

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
)

// BenchmarkFields is the part of a push of 10,000 endpoints that looks for fields that
// are not applied. Compare it with BenchmarkDecodeAssignment: it takes a hundredth of it.
func BenchmarkFields(b *testing.B) {
	group := &endpointv3.LocalityLbEndpoints{}
	for i := range 10_000 {
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
			Hostname: "h", Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
				Address: fmt.Sprintf("10.0.%d.%d", i>>8, i&255), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 8080},
			}}},
		}}})
	}
	m := &endpointv3.ClusterLoadAssignment{Endpoints: []*endpointv3.LocalityLbEndpoints{group}}
	b.ReportAllocs()
	for b.Loop() {
		v := &report{byHand: true}
		v.fields(m, "")
	}
}
