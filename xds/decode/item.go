package decode

import "github.com/lbd-dev/lbd/xds/resource"

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
