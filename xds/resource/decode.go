package resource

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// DecodeAssignment reads a ClusterLoadAssignment, or a DiscoveryResponse that
// holds just one, which is also the form of the file that Envoy's file-based
// EDS reads. The error is a *SyntaxError, a *SizeError or an *InvalidError.
func DecodeAssignment(body []byte, o Options) (*Decoded[*Assignment], error) {
	m := &endpointv3.ClusterLoadAssignment{}
	return decode(TypeAssignment, m, body, o, func(v *verdict) *Assignment {
		m.ClusterName = v.name("cluster_name", m.GetClusterName(), o.Name)
		return v.assignment(m)
	})
}

// DecodeCluster reads a Cluster, or a DiscoveryResponse that holds just one.
// The error is a *SyntaxError, a *SizeError or an *InvalidError.
func DecodeCluster(body []byte, o Options) (*Decoded[*Cluster], error) {
	m := &clusterv3.Cluster{}
	return decode(TypeCluster, m, body, o, func(v *verdict) *Cluster {
		m.Name = v.name("name", m.GetName(), o.Name)
		return v.cluster(m)
	})
}

// DecodeListener reads a Listener (LDS), or a DiscoveryResponse that holds just
// one. The error is a *SyntaxError, a *SizeError or an *InvalidError.
func DecodeListener(body []byte, o Options) (*Decoded[*Listener], error) {
	m := &listenerv3.Listener{}
	return decode(TypeListener, m, body, o, func(v *verdict) *Listener {
		m.Name = v.name("name", m.GetName(), o.Name)
		return v.listener(m)
	})
}

// DecodeRouteConfiguration reads a RouteConfiguration (RDS), or a
// DiscoveryResponse that holds just one. The error is a *SyntaxError, a
// *SizeError or an *InvalidError.
func DecodeRouteConfiguration(body []byte, o Options) (*Decoded[*RouteConfiguration], error) {
	m := &routev3.RouteConfiguration{}
	return decode(TypeRoutes, m, body, o, func(v *verdict) *RouteConfiguration {
		m.Name = v.name("name", m.GetName(), o.Name)
		return v.routes(m, "")
	})
}

// decode reads body into m, a resource of type t, which judge validates.
func decode[V any](t Type, m proto.Message, body []byte, o Options, judge func(*verdict) V) (*Decoded[V], error) {
	d, err := decodeUnplaced(t, m, body, o, judge)
	if err != nil {
		placeError(err, body, o.Format, true)
		return nil, err
	}
	if o.Places {
		Place(body, o.Format, true, d.Warnings, d.Notes)
	}
	return d, nil
}

// decodeUnplaced is decode without the lines and columns of problems.
func decodeUnplaced[V any](t Type, m proto.Message, body []byte, o Options, judge func(*verdict) V) (d *Decoded[V], err error) {
	defer refusePanic(Key{t, o.Name}, &err)
	v, err := read(t, m, body, o)
	if err != nil {
		return nil, err
	}
	return settle(v, m, judge(v))
}

// refusePanic turns a panic into a refusal: whoever can send a resource must
// not be able to end the process with it.
func refusePanic(k Key, err *error) {
	if p := recover(); p != nil {
		*err = &InvalidError{Problems: []Problem{{
			Resource: k.String(),
			Reason:   fmt.Sprintf("decoding panicked, which is a fault of lbd: %v", p),
		}}}
	}
}

// read reads body into m, whatever its format and envelope, and begins the
// verdict with what reading alone tells: unknown fields and enum values.
func read(t Type, m proto.Message, body []byte, o Options) (*verdict, error) {
	v := o.begin(Key{t, o.Name})
	var err error
	switch o.Format {
	case FormatProtobuf:
		err = v.readBinary(body, m)
	case FormatYAML:
		if body, err = yamlToJSON(body); err == nil {
			err = v.readJSON(body, FormatYAML, m)
		}
	default:
		err = v.readJSON(body, FormatJSON, m)
	}
	if err != nil {
		return nil, err
	}
	// A body of another kind would pass for an empty resource, and take away
	// all that is there.
	if v.byHand && !v.unknown.empty() && isEmpty(m) {
		v.otherType(t)
	}
	return v, nil
}

// otherType refuses a resource that has no field of its type t, only unknown ones.
func (v *verdict) otherType(t Type) {
	for _, other := range types {
		m, err := newMessage(other)
		if err == nil && !slices.ContainsFunc(v.unknown.list, func(p Problem) bool {
			return fieldNamed(m.ProtoReflect().Descriptor(), p.Field) == nil
		}) {
			v.unknown = ledger{}
			v.refuse("", "holds no field of a %s: is it a %s?", t, other)
			return
		}
	}
	v.unknown.list = slices.DeleteFunc(v.unknown.list, func(p Problem) bool { return !strings.Contains(p.Reason, didYouMean) })
	v.refuse("", "holds no field of a %s: is it a resource of another type?", t)
}

// isEmpty reports whether m has no field set, unknown ones aside.
func isEmpty(m proto.Message) bool {
	empty := true
	m.ProtoReflect().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
		empty = false
		return false
	})
	return empty
}

// settle ends the verdict.
func settle[V any](v *verdict, m proto.Message, value V) (*Decoded[V], error) {
	if err := v.err(); err != nil {
		return nil, err
	}
	raw, err := v.encode(m)
	if err != nil {
		return nil, err
	}
	v.fields(m, "")
	return &Decoded[V]{Value: value, Raw: raw, Warnings: v.remarks().of(v.key), Notes: v.notes.of(v.key)}, nil
}

// encode returns m as it is kept, which must be such that it can be read again:
// what is short as JSON may be many entries as protobuf.
func (v *verdict) encode(m proto.Message) ([]byte, error) {
	raw, err := canonical.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", v.key, err)
	}
	if v.byHand {
		if err := binarySize(raw, m.ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// name judges a resource's own name, fills in an absent one, and returns it.
func (v *verdict) name(field, own, expected string) string {
	if !v.byHand {
		if own == "" {
			v.refuse(field, "is empty")
			return ""
		}
		v.key.Name = own
		return own
	}
	switch {
	case own == "" && expected == "":
		v.refuse(field, "is empty")
		return ""
	case own == "":
		v.note(field, "is absent: taken as %q", expected)
		own = expected
	case expected != "" && own != expected:
		v.refuse(field, "is %q, and should be %q or absent", own, expected)
		return expected
	}
	v.key.Name = own
	if reason := badName(own); reason != "" {
		v.refuse(field, "%s", reason)
	}
	return own
}

// badName says why s cannot name a resource, or nothing.
func badName(s string) string {
	if len(s) > MaxNameBytes {
		return fmt.Sprintf("is %d bytes long, of at most %d", len(s), MaxNameBytes)
	}
	if s == ReservedName {
		return fmt.Sprintf("is %q, which stands in metrics for the clusters that have no series of their own", s)
	}
	return unprintable(s)
}

// unprintable says which character of s cannot be printed, or nothing.
func unprintable(s string) string {
	if !utf8.ValidString(s) {
		return "is not valid UTF-8"
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("holds the character %U, which cannot be printed", r)
		}
	}
	return ""
}
