package admission

import (
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Restore returns the versions of an archive with the values of their items, and with the
// warnings about rules that are newer than they. o are the options of the decoder,
// without name and format. An item that the decoder rejects now has no value.
func Restore(versions map[string]*files.Version, o decode.Options) map[string]*files.Version {
	// No lbd that archives versions of files made plain connections for a certificate
	// provider that it did not have.
	o.Format, o.Stored, o.Secured = decode.FormatProtobuf, true, true
	out := make(map[string]*files.Version, len(versions))
	for name, v := range versions {
		decoded := *v
		decoded.Items = make([]resource.Item, len(v.Items))
		for i, item := range v.Items {
			o.Name = item.Key.Name
			var warnings []decode.Problem
			decoded.Items[i], warnings, _ = Decode(item, o)
			decoded.Warnings = append(decoded.Warnings, warnings...)
		}
		out[name] = &decoded
	}
	return out
}

// Decode returns an item, whose Raw is protobuf, with its value, and the warnings about
// it. If the decoder rejects it, the item has no value.
func Decode(i resource.Item, o decode.Options) (_ resource.Item, warnings []decode.Problem, err error) {
	switch i.Key.Type {
	case resource.TypeListener:
		i.Listener, warnings, err = decoded(decode.Listener(i.Raw, o))
	case resource.TypeRoutes:
		i.Routes, warnings, err = decoded(decode.RouteConfiguration(i.Raw, o))
	case resource.TypeCluster:
		i.Cluster, warnings, err = decoded(decode.Cluster(i.Raw, o))
	case resource.TypeAssignment:
		i.Assignment, warnings, err = decoded(decode.Assignment(i.Raw, o))
	}
	return i, warnings, err
}

func decoded[V any](d *decode.Decoded[*V], err error) (*V, []decode.Problem, error) {
	if err != nil {
		return nil, nil, err
	}
	return d.Value, d.Warnings, nil
}
