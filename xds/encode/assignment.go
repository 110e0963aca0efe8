package encode

import (
	"fmt"
	"net"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/lbd-dev/lbd/xds/resource"
)

var deterministic = proto.MarshalOptions{Deterministic: true}

// Assignment returns a ClusterLoadAssignment. Equal values give equal bytes.
func Assignment(a *resource.Assignment) ([]byte, error) {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: a.Name}
	for _, d := range a.Drops {
		if m.Policy == nil {
			m.Policy = &endpointv3.ClusterLoadAssignment_Policy{}
		}
		m.Policy.DropOverloads = append(m.Policy.DropOverloads, &endpointv3.ClusterLoadAssignment_Policy_DropOverload{
			Category:       d.Category,
			DropPercentage: &typev3.FractionalPercent{Numerator: uint32(d.PerMillion), Denominator: typev3.FractionalPercent_MILLION},
		})
	}
	for _, l := range a.Localities {
		group, err := locality(l)
		if err != nil {
			return nil, fmt.Errorf("encode the assignment %q: %w", a.Name, err)
		}
		m.Endpoints = append(m.Endpoints, group)
	}
	return deterministic.Marshal(m)
}

func locality(l *resource.LocalityEndpoints) (*endpointv3.LocalityLbEndpoints, error) {
	m := &endpointv3.LocalityLbEndpoints{
		Locality:            &corev3.Locality{Region: l.ID.Region, Zone: l.ID.Zone, SubZone: l.ID.SubZone},
		LoadBalancingWeight: wrapperspb.UInt32(l.Weight), Priority: l.Priority,
	}
	for _, e := range l.Endpoints {
		one, err := endpoint(e)
		if err != nil {
			return nil, err
		}
		m.LbEndpoints = append(m.LbEndpoints, one)
	}
	return m, nil
}

func endpoint(e *resource.Endpoint) (*endpointv3.LbEndpoint, error) {
	to := &endpointv3.Endpoint{Hostname: e.Hostname}
	for i, text := range e.Addresses {
		address, err := address(text)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			to.Address = address
			continue
		}
		to.AdditionalAddresses = append(to.AdditionalAddresses, &endpointv3.Endpoint_AdditionalAddress{Address: address})
	}
	m := &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: to}, HealthStatus: corev3.HealthStatus(e.Health)}
	if e.Health == resource.HealthUnrecognized { // as lbd treats it
		m.HealthStatus = corev3.HealthStatus_UNHEALTHY
	}
	if e.Weight != 1 {
		m.LoadBalancingWeight = wrapperspb.UInt32(e.Weight)
	}
	if e.HashKey != "" { // gRFC A76
		m.Metadata = metadata("envoy.lb", map[string]*structpb.Value{"hash_key": structpb.NewStringValue(e.HashKey)})
	}
	return m, nil
}

func address(text string) (*corev3.Address, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("address %s: %w", text, err)
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(number)},
	}}}, nil
}

func metadata(name string, fields map[string]*structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{name: {Fields: fields}}}
}
