package decode

import (
	"math"
	"math/rand/v2"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// mutation changes messages at random.
type mutation struct{ *rand.Rand }

// change changes a message in one to three places, most of which are fields.
func (m mutation) change(body []byte) []byte {
	body = slices.Clone(body)
	for range 1 + m.IntN(3) {
		if m.IntN(8) == 0 {
			body = m.bytes(body)
		} else {
			body = m.message(body, 0)
		}
	}
	return body
}

// bytes changes a byte.
func (m mutation) bytes(body []byte) []byte {
	if len(body) == 0 {
		return []byte{byte(m.Uint32())}
	}
	i := m.IntN(len(body))
	switch m.IntN(4) {
	case 0:
		return slices.Delete(body, i, i+1)
	case 1:
		return slices.Insert(body, i, byte(m.Uint32()))
	case 2:
		body[i] ^= 1 << m.IntN(8)
	default:
		body[i] = byte(m.Uint32())
	}
	return body
}

// message changes a field of a message, or of a message in it.
func (m mutation) message(body []byte, depth int) []byte {
	var fields [][]byte
	for rest := body; len(rest) > 0; {
		_, _, n := protowire.ConsumeField(rest)
		if n < 0 {
			return m.bytes(body)
		}
		fields, rest = append(fields, slices.Clone(rest[:n])), rest[n:]
	}
	if len(fields) == 0 {
		return m.field()
	}
	i := m.IntN(len(fields))
	if num, typ, n := protowire.ConsumeTag(fields[i]); typ == protowire.BytesType && depth < 20 && m.IntN(10) < 8 {
		value, _ := protowire.ConsumeBytes(fields[i][n:])
		if m.IntN(6) == 0 || !isMessage(value) {
			value = m.text(value)
		} else {
			value = m.message(slices.Clone(value), depth+1)
		}
		fields[i] = protowire.AppendBytes(protowire.AppendTag(nil, num, typ), value)
		return slices.Concat(fields...)
	}
	switch k := m.IntN(len(fields)); m.IntN(10) {
	case 0:
		fields = slices.Delete(fields, i, i+1)
	case 1:
		fields = slices.Insert(fields, k, slices.Clone(fields[i]))
	case 2:
		fields[i], fields[k] = fields[k], fields[i]
	case 3:
		fields = slices.Insert(slices.Delete(fields, i, i+1), k, fields[i])
	case 4:
		fields = slices.Insert(fields, k, m.field())
	case 5:
		fields[i] = m.longer(fields[i])
	case 6:
		m.Shuffle(len(fields), func(a, b int) { fields[a], fields[b] = fields[b], fields[a] })
	case 7:
		fields = slices.Delete(fields, min(i, k), max(i, k))
	case 8:
		num, _, _ := protowire.ConsumeTag(fields[i])
		fields[i] = m.value(num)
	default:
		num, _, n := protowire.ConsumeField(fields[i])
		if n < 0 || num > 15 || fields[i][0] >= 1<<7 {
			return m.bytes(body)
		}
		fields[i][0] = fields[i][0]&7 | byte(1+m.IntN(15))<<3
	}
	return slices.Concat(fields...)
}

func isMessage(b []byte) bool {
	for len(b) > 0 {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 || num > 20 {
			return false
		}
		b = b[n:]
	}
	return true
}

var texts = []string{
	"", "a", "10.0.0.1", "10.0.0.2", "::1", "fe80::1%eth0", "host.example.com", "999.1.1.1", "[::1]", "a:80", "-a", "a b", "\xff", "\x00", "é",
	"envoy.lb", "hash_key", "lbd", "ttl", "30s", "1500ms", "1ms", "region", "zone-1", "\x08\x01", "\x0a\x01a", "\x08\x00", "\x08\x80\x00", "\x18\x90\x3f",
}

func (m mutation) text(old []byte) []byte {
	if m.IntN(3) == 0 {
		return m.bytes(slices.Clone(old))
	}
	return []byte(texts[m.IntN(len(texts))])
}

var numbers = []uint64{0, 1, 2, 5, 6, 80, 127, 128, 65535, 65536, 1 << 31, math.MaxUint32, 1 << 32, math.MaxUint64, math.MaxUint64 - 1}

// field returns a field with a random number.
func (m mutation) field() []byte { return m.value(protowire.Number(1 + m.IntN(20))) }

func (m mutation) value(num protowire.Number) []byte {
	switch typ := protowire.Type(m.IntN(6)); typ {
	case protowire.VarintType:
		return protowire.AppendVarint(protowire.AppendTag(nil, num, typ), numbers[m.IntN(len(numbers))])
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(protowire.AppendTag(nil, num, typ), m.Uint64())
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(protowire.AppendTag(nil, num, typ), m.Uint32())
	case protowire.StartGroupType:
		return protowire.AppendGroup(protowire.AppendTag(nil, num, typ), num, nil)
	default:
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), m.text(nil))
	}
}

// longer writes a number of a field in more bytes than it needs.
func (m mutation) longer(field []byte) []byte {
	var ends []int // of varints
	_, typ, n := protowire.ConsumeTag(field)
	ends = append(ends, n)
	if typ == protowire.VarintType || typ == protowire.BytesType {
		_, size := protowire.ConsumeVarint(field[n:])
		ends = append(ends, n+size)
	}
	end := ends[m.IntN(len(ends))]
	field[end-1] |= 1 << 7
	return slices.Insert(field, end, slices.Concat(slices.Repeat([]byte{1 << 7}, m.IntN(8)), []byte{0})...)
}

// randomAssignment returns an assignment that is probably valid.
func randomAssignment(r *rand.Rand) []byte {
	m := &endpointv3.ClusterLoadAssignment{ClusterName: "orders"}
	port := uint32(1)
	weighted := r.IntN(2) == 0
	for i := range r.IntN(4) {
		g := &endpointv3.LocalityLbEndpoints{Locality: &corev3.Locality{Region: "region", Zone: texts[1+i]}, Priority: uint32(r.IntN(2))}
		if weighted {
			g.LoadBalancingWeight = wrapperspb.UInt32(uint32(r.IntN(3)))
		}
		endpoints := r.IntN(5)
		if r.IntN(16) == 0 {
			endpoints = r.IntN(3 * batchSize)
		}
		for range endpoints {
			g.LbEndpoints = append(g.LbEndpoints, randomEndpoint(r, port))
			port++
		}
		m.Endpoints = append(m.Endpoints, g)
	}
	if r.IntN(3) == 0 {
		m.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
			Category: "throttle", DropPercentage: &typev3.FractionalPercent{Numerator: uint32(r.IntN(200)), Denominator: typev3.FractionalPercent_DenominatorType(r.IntN(4))},
		}}}
	}
	if r.IntN(8) == 0 {
		m.Policy = &endpointv3.ClusterLoadAssignment_Policy{OverprovisioningFactor: wrapperspb.UInt32(140)}
	}
	body, _ := canonical.Marshal(m)
	return body
}

func randomEndpoint(r *rand.Rand, port uint32) *endpointv3.LbEndpoint {
	e := &endpointv3.Endpoint{Address: socketAddress(texts[2+r.IntN(5)], port)}
	m := &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: e}, HealthStatus: corev3.HealthStatus(r.IntN(6))}
	if r.IntN(4) == 0 {
		m.LoadBalancingWeight = wrapperspb.UInt32(1 + uint32(r.IntN(1000)))
	}
	if r.IntN(4) == 0 {
		e.Hostname = texts[6]
	}
	if r.IntN(8) == 0 {
		e.AdditionalAddresses = []*endpointv3.Endpoint_AdditionalAddress{{Address: socketAddress("10.9.9.9", port)}}
	}
	if r.IntN(3) == 0 {
		m.Metadata = someMetadata(map[string]any{"hash_key": texts[r.IntN(6)], "version": "1", "x": map[string]any{"b": 1, "a": []any{nil, true, 0, "", map[string]any{}}}})
		if r.IntN(2) == 0 {
			ttls := []any{"30s", "1h", "1.5s", "1.0001s", "2h", "", 30, nil}
			own, err := structpb.NewStruct(map[string]any{"ttl": ttls[r.IntN(len(ttls))]})
			if err != nil {
				panic(err)
			}
			m.Metadata.FilterMetadata["lbd"] = own
		}
	}
	return m
}

func socketAddress(host string, port uint32) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
}

func someMetadata(lb map[string]any) *corev3.Metadata {
	fields, err := structpb.NewStruct(lb)
	if err != nil {
		panic(err)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": fields, "a": {}, "z": {}}}
}
