package admission

import (
	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Restore gives the items of versions that an archive kept their values, and the
// versions the warnings about rules that are newer than they. o are the
// options of the decoder, but for name and format. An item that the decoder rejects
// now has none; whoever uses it decodes it again, and learns why.
func Restore(versions map[string]*files.Version, o decode.Options) map[string]*files.Version {
	// No lbd that keeps versions of files took a certificate provider that was not there
	// for plain connections.
	o.Format, o.Stored, o.Secured = decode.FormatProtobuf, true, true
	out := make(map[string]*files.Version, len(versions))
	for name, v := range versions {
		decoded := *v
		decoded.Items = make([]resource.Item, len(v.Items))
		for i, item := range v.Items {
			o.Name = item.Key.Name
			var warnings []decode.Problem
			decoded.Items[i], warnings = redecode(item, o)
			decoded.Warnings = append(decoded.Warnings, warnings...)
		}
		out[name] = &decoded
	}
	return out
}

// Decode returns an item, whose Raw is protobuf, with its value; without one where
// the decoder rejects it.
func Decode(i resource.Item, o decode.Options) resource.Item {
	i, _ = redecode(i, o)
	return i
}

func redecode(i resource.Item, o decode.Options) (resource.Item, []decode.Problem) {
	var warnings []decode.Problem
	switch i.Key.Type {
	case resource.TypeListener:
		d, err := decode.Listener(i.Raw, o)
		i.Listener, warnings = decoded(d, err)
	case resource.TypeRoutes:
		d, err := decode.RouteConfiguration(i.Raw, o)
		i.Routes, warnings = decoded(d, err)
	case resource.TypeCluster:
		d, err := decode.Cluster(i.Raw, o)
		i.Cluster, warnings = decoded(d, err)
	case resource.TypeAssignment:
		d, err := decode.Assignment(i.Raw, o)
		i.Assignment, warnings = decoded(d, err)
	}
	return i, warnings
}

func decoded[V any](d *decode.Decoded[*V], err error) (*V, []decode.Problem) {
	if err != nil {
		return nil, nil
	}
	return d.Value, d.Warnings
}
