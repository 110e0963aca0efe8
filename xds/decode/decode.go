package decode

import (
	"fmt"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lbd-dev/lbd/xds/resource"
)

// Assignment reads a ClusterLoadAssignment, or a DiscoveryResponse with only one, which
// is also the form of the file that Envoy's file-based EDS reads. As of all functions
// here, the error is a *SyntaxError, a *SizeError or an *InvalidError.
func Assignment(body []byte, o Options) (*Decoded[*resource.Assignment], error) {
	return decode(resource.TypeAssignment, body, o, func(it *resource.Item) *resource.Assignment { return it.Assignment })
}

// Cluster reads a Cluster, or a DiscoveryResponse with only one.
func Cluster(body []byte, o Options) (*Decoded[*resource.Cluster], error) {
	return decode(resource.TypeCluster, body, o, func(it *resource.Item) *resource.Cluster { return it.Cluster })
}

// Listener reads a Listener (LDS), or a DiscoveryResponse with only one.
func Listener(body []byte, o Options) (*Decoded[*resource.Listener], error) {
	return decode(resource.TypeListener, body, o, func(it *resource.Item) *resource.Listener { return it.Listener })
}

// RouteConfiguration reads a RouteConfiguration (RDS), or a DiscoveryResponse with only one.
func RouteConfiguration(body []byte, o Options) (*Decoded[*resource.RouteConfiguration], error) {
	return decode(resource.TypeRoutes, body, o, func(it *resource.Item) *resource.RouteConfiguration { return it.Routes })
}

// Item returns an item, whose Raw is protobuf, with its value, and the warnings about
// it. If the decoder rejects it, the item has no value.
func Item(i resource.Item, o Options) (_ resource.Item, warnings []Problem, err error) {
	if i.Key.Type.URL() == "" {
		return i, nil, nil
	}
	d, err := decode(i.Key.Type, i.Raw, o, func(it *resource.Item) *resource.Item { return it })
	if err != nil {
		return i, nil, err
	}
	i.Listener, i.Routes, i.Cluster, i.Assignment = d.Value.Listener, d.Value.Routes, d.Value.Cluster, d.Value.Assignment
	return i, d.Warnings, nil
}

// decode reads and validates a resource of type t, whose value is in an item at value.
func decode[V any](t resource.Type, body []byte, o Options, value func(*resource.Item) V) (*Decoded[V], error) {
	r := o.begin(resource.Key{Type: t, Name: o.Name})
	var it resource.Item
	err := decodeItem(r, &it, func(string) string { return o.Name }, func(r *report, m proto.Message) error {
		return read(r, body, o.Format, m)
	})
	if err == nil {
		err = r.err()
	}
	if err != nil {
		placeError(err, body, o.Format, true)
		return nil, err
	}
	d := &Decoded[V]{Value: value(&it), Raw: it.Raw, Warnings: r.remarks().of(r.key), Notes: r.notes.of(r.key)}
	if o.Places {
		Place(body, o.Format, true, d.Warnings, d.Notes)
	}
	return d, nil
}

// decodeItem decodes and validates a resource of the report's type, and sets the item's
// value, which is complete only if the report has no problems. read reads the resource;
// expected returns the name that it must have, given its own.
func decodeItem(r *report, it *resource.Item, expected func(own string) string, read func(*report, proto.Message) error) (err error) {
	defer rejectPanic(r.key, &err)
	m := newMessage(r.key.Type)
	if err := read(r, m); err != nil {
		return err
	}
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
	if r.err() != nil {
		return nil
	}
	r.fields(m, "")
	if it.Raw, err = canonical.Marshal(m); err != nil {
		return fmt.Errorf("encode %s: %w", r.key, err)
	}
	if r.byHand { // a short JSON text may have many entries as protobuf
		return binarySize(it.Raw, m.ProtoReflect().Descriptor(), MaxProtobufEntries)
	}
	return nil
}

// rejectPanic turns a panic into a rejection: a resource must not end the process.
func rejectPanic(k resource.Key, err *error) {
	if p := recover(); p != nil {
		*err = &InvalidError{Problems: []Problem{{
			Resource: k.String(),
			Reason:   fmt.Sprintf("decoding panicked, which is a fault of lbd: %v", p),
		}}}
	}
}
