package decode

import "github.com/lbd-dev/lbd/xds/resource"

// Item returns an item, whose Raw is protobuf, with its value, and the warnings about
// it. If the decoder rejects it, the item has no value.
func Item(i resource.Item, o Options) (_ resource.Item, warnings []Problem, err error) {
	switch i.Key.Type {
	case resource.TypeListener:
		i.Listener, warnings, err = parts(Listener(i.Raw, o))
	case resource.TypeRoutes:
		i.Routes, warnings, err = parts(RouteConfiguration(i.Raw, o))
	case resource.TypeCluster:
		i.Cluster, warnings, err = parts(Cluster(i.Raw, o))
	case resource.TypeAssignment:
		i.Assignment, warnings, err = parts(Assignment(i.Raw, o))
	}
	return i, warnings, err
}

func parts[V any](d *Decoded[*V], err error) (*V, []Problem, error) {
	if err != nil {
		return nil, nil, err
	}
	return d.Value, d.Warnings, nil
}
