package decode

import (
	"cmp"
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Assignment reads a ClusterLoadAssignment, or a DiscoveryResponse that holds
// just one, which is also the form of the file that Envoy's file-based EDS reads.
// The error is a *SyntaxError, a *SizeError or an *InvalidError.
func Assignment(body []byte, o Options) (*Decoded[*resource.Assignment], error) {
	return decode(resource.TypeAssignment, body, o, func(it *resource.Item) *resource.Assignment { return it.Assignment })
}

// Cluster reads a Cluster, or a DiscoveryResponse that holds just one. The error
// is a *SyntaxError, a *SizeError or an *InvalidError.
func Cluster(body []byte, o Options) (*Decoded[*resource.Cluster], error) {
	return decode(resource.TypeCluster, body, o, func(it *resource.Item) *resource.Cluster { return it.Cluster })
}

// Listener reads a Listener (LDS), or a DiscoveryResponse that holds just one. The
// error is a *SyntaxError, a *SizeError or an *InvalidError.
func Listener(body []byte, o Options) (*Decoded[*resource.Listener], error) {
	return decode(resource.TypeListener, body, o, func(it *resource.Item) *resource.Listener { return it.Listener })
}

// RouteConfiguration reads a RouteConfiguration (RDS), or a DiscoveryResponse that
// holds just one. The error is a *SyntaxError, a *SizeError or an *InvalidError.
func RouteConfiguration(body []byte, o Options) (*Decoded[*resource.RouteConfiguration], error) {
	return decode(resource.TypeRoutes, body, o, func(it *resource.Item) *resource.RouteConfiguration { return it.Routes })
}

// decode reads and validates body, a resource of type t, of which value returns
// the value.
func decode[V any](t resource.Type, body []byte, o Options, value func(*resource.Item) V) (*Decoded[V], error) {
	d, err := decodeUnplaced(t, body, o, value)
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
func decodeUnplaced[V any](t resource.Type, body []byte, o Options, value func(*resource.Item) V) (d *Decoded[V], err error) {
	r := o.begin(resource.Key{Type: t, Name: o.Name})
	defer rejectPanic(r.key, &err)
	m, err := newMessage(t)
	if err != nil {
		return nil, err
	}
	if err := read(r, body, o.Format, m); err != nil {
		return nil, err
	}
	var it resource.Item
	validate(r, &it, m, func(string) string { return o.Name })
	if err := r.err(); err != nil {
		return nil, err
	}
	raw, err := encode(r, m)
	if err != nil {
		return nil, err
	}
	r.fields(m, "")
	return &Decoded[V]{Value: value(&it), Raw: raw, Warnings: r.remarks().of(r.key), Notes: r.notes.of(r.key)}, nil
}

// decodeItem decodes a resource of the report's type, which gets name if it has no
// name of its own. read reads it into the message.
func decodeItem(r *report, it *resource.Item, name string, read func(*report, proto.Message) error) (err error) {
	defer rejectPanic(r.key, &err)
	m, err := newMessage(r.key.Type)
	if err != nil {
		return err
	}
	if err := read(r, m); err != nil {
		return err
	}
	validate(r, it, m, func(own string) string { return cmp.Or(own, name) })
	if it.Raw, err = encode(r, m); err == nil && r.problems.empty() {
		r.fields(m, "")
	}
	return err
}

// validate applies the rules to m and sets the item's value, which is of use only
// if nothing was refused. expected returns the name that a resource must have, or
// gets if it has none, by its own.
func validate(r *report, it *resource.Item, m proto.Message, expected func(own string) string) {
	switch m := m.(type) {
	case *listenerv3.Listener:
		m.Name = r.name("name", m.GetName(), expected(m.GetName()))
		it.Listener = validateListener(r, m)
	case *routev3.RouteConfiguration:
		m.Name = r.name("name", m.GetName(), expected(m.GetName()))
		it.Routes = validateRoutes(r, m, "")
	case *clusterv3.Cluster:
		m.Name = r.name("name", m.GetName(), expected(m.GetName()))
		it.Cluster = validateCluster(r, m)
	case *endpointv3.ClusterLoadAssignment:
		m.ClusterName = r.name("cluster_name", m.GetClusterName(), expected(m.GetClusterName()))
		it.Assignment = validateAssignment(r, m)
	}
}

// encode returns m as it is kept, which must be such that it can be read again:
// what is short as JSON may be many entries as protobuf.
func encode(r *report, m proto.Message) ([]byte, error) {
	raw, err := canonical.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", r.key, err)
	}
	if r.byHand {
		if err := binarySize(raw, m.ProtoReflect().Descriptor(), MaxProtobufEntries); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

// rejectPanic turns a panic into a refusal: whoever can send a resource must
// not be able to end the process with it.
func rejectPanic(k resource.Key, err *error) {
	if p := recover(); p != nil {
		*err = &InvalidError{Problems: []Problem{{
			Resource: k.String(),
			Reason:   fmt.Sprintf("decoding panicked, which is a fault of lbd: %v", p),
		}}}
	}
}
