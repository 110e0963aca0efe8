package decode

import (
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// carried are the messages that the decoder reads out of an Any or by a variant: what
// no other message of the tables leads to.
var carried = []string{
	"envoy.service.discovery.v3.Resource",
	"envoy.config.endpoint.v3.ClusterLoadAssignment" + logicalDNS,
	"envoy.config.cluster.v3.Cluster.EdsClusterConfig",
	"envoy.config.cluster.v3.Cluster.RingHashLbConfig",
	"envoy.config.cluster.v3.Cluster.LeastRequestLbConfig",
	"envoy.extensions.clusters.aggregate.v3.ClusterConfig",
	"envoy.extensions.load_balancing_policies.wrr_locality.v3.WrrLocality",
	"xds.type.v3.TypedStruct",
	"udpa.type.v1.TypedStruct",
	"envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
	"envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
	"envoy.extensions.filters.http.router.v3.Router",
}

// TestEveryFieldIsClassified fails when go-control-plane has a field that the tables
// do not have: decide what lbd does with it, and write it down there.
func TestEveryFieldIsClassified(t *testing.T) {
	tables := map[string][]FieldUse{}
	for message, uses := range FieldTable {
		if _, again := tables[message]; again {
			t.Errorf("%s is in the table twice", message)
		}
		tables[message] = uses
	}
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		uses, ok := tables[name]
		if !ok {
			t.Errorf("%s is not in the table, and an applied field leads to it", name)
			return
		}
		full, variant, _ := strings.Cut(name, " ")
		fields := newMessageOf(t, full).Descriptor().Fields()
		for i := range fields.Len() {
			if n := len(usesOf(uses, fields.Get(i).Name())); n != 1 {
				t.Errorf("%s.%s is classified %d times", name, fields.Get(i).Name(), n)
			}
		}
		for _, use := range uses {
			if m := messageIn(use.descriptor); use.Applied && use.Words == "" && m != nil && m.ParentFile().Package() != "google.protobuf" {
				inner := string(m.FullName())
				if _, ok := tables[inner+" "+variant]; ok {
					inner += " " + variant
				}
				visit(inner)
			}
		}
	}
	for _, m := range []proto.Message{&endpointv3.ClusterLoadAssignment{}, &clusterv3.Cluster{}, &listenerv3.Listener{}, &routev3.RouteConfiguration{}} {
		visit(string(nameOf(m)))
	}
	for _, name := range carried {
		visit(name)
	}
	for _, c := range converters {
		visit(string(c.name))
	}
	for name := range tables {
		if !seen[name] {
			t.Errorf("nothing leads to %s", name)
		}
	}
}

func usesOf(uses []FieldUse, name protoreflect.Name) []FieldUse {
	return slices.DeleteFunc(slices.Clone(uses), func(u FieldUse) bool { return u.Field != name })
}

// TestEveryIgnoredFieldIsWarnedOf sets each field of the tables that is not applied,
// alone, on a path of applied fields.
func TestEveryIgnoredFieldIsWarnedOf(t *testing.T) {
	n := 0
	for message, uses := range FieldTable {
		name, variant, _ := strings.Cut(message, " ")
		if variant != "" {
			variant = " " + variant
		}
		for _, use := range uses {
			m := newMessageOf(t, name)
			fd := m.Descriptor().Fields().ByName(use.Field)
			set1(m, fd)
			v := &report{byHand: true}
			v.fieldsAs(m.Interface(), "at[0]", variant)
			got := v.remarks().list
			if use.Applied {
				if len(got) > 0 {
					t.Errorf("%s.%s is applied, and warned of: %v", message, use.Field, got)
				}
				continue
			}
			n++
			if len(got) != 1 || got[0].Field != "at[0]."+string(use.Field) || !strings.HasPrefix(got[0].Reason, "is not applied") || !strings.HasSuffix(got[0].Reason, use.Words) {
				t.Errorf("%s.%s: warnings %v", message, use.Field, got)
			}
			server := &report{}
			server.fieldsAs(m.Interface(), "at[0]", variant)
			if list := server.unapplied.fields(); len(list) != 1 || list[0].Field != message+"."+string(use.Field) || list[0].Path != got[0].Field || list[0].Reason != got[0].Reason {
				t.Errorf("%s.%s of a server: %v", message, use.Field, list)
			}
			stored := &report{Options: Options{Stored: true}}
			if stored.fieldsAs(m.Interface(), "", variant); len(stored.unapplied.fields()) > 0 {
				t.Errorf("%s.%s of a stored resource is reported", message, use.Field)
			}
		}
	}
	if n < 300 {
		t.Errorf("only %d fields are not applied", n)
	}
}

// TestPlainEndpointsHaveNothingIgnored: the short way past an endpoint misses no field
// that the tables do not apply.
func TestPlainEndpointsHaveNothingIgnored(t *testing.T) {
	n := 0
	var visit func(plan *fieldPlan, steps []protoreflect.FieldDescriptor)
	visit = func(plan *fieldPlan, steps []protoreflect.FieldDescriptor) {
		for _, f := range plan.ignored {
			n++
			e := &endpointv3.LbEndpoint{}
			m := e.ProtoReflect()
			for _, fd := range steps {
				if fd.IsList() {
					m = m.Mutable(fd).List().AppendMutable().Message()
				} else {
					m = m.Mutable(fd).Message()
				}
			}
			set1(m, f.fd)
			if plainEndpoint(e) {
				t.Errorf("an endpoint with %s is plain", f.fd.FullName())
			}
		}
		for _, inner := range plan.nested {
			visit(inner.plan, append(slices.Clip(steps), inner.fd))
		}
	}
	visit(fieldPlans()[string(nameOf(&endpointv3.LbEndpoint{}))], nil)
	if n < 8 || !plainEndpoint(&endpointv3.LbEndpoint{}) {
		t.Errorf("an endpoint has %d fields that are not applied", n)
	}
}

// newMessageOf returns an empty message by its full name.
func newMessageOf(t *testing.T, name string) protoreflect.Message {
	t.Helper()
	if m := resolve(typeURLPrefix + name); m != nil {
		return m.ProtoReflect()
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	md, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		t.Fatal(name, err)
	}
	return dynamicpb.NewMessage(md)
}

// set1 sets a field to something other than its default.
func set1(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsMap():
		entries := m.Mutable(fd).Map()
		key := protoreflect.ValueOfString("k").MapKey()
		if fd.MapValue().Message() != nil {
			entries.Mutable(key)
		} else {
			entries.Set(key, nonzero(fd.MapValue()))
		}
	case fd.IsList() && fd.Message() != nil:
		m.Mutable(fd).List().AppendMutable()
	case fd.IsList():
		m.Mutable(fd).List().Append(nonzero(fd))
	case fd.Message() != nil:
		m.Mutable(fd)
	default:
		m.Set(fd, nonzero(fd))
	}
}

func nonzero(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("x")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("x"))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	default:
		panic("a field of kind " + fd.Kind().String())
	}
}
