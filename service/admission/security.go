package admission

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lbd-dev/lbd/xds/resource"
)

// plainCluster says how an author asks for connections without TLS.
const plainCluster = "for connections without TLS give it a Cluster with metadata: {filter_metadata: {lbd: {connect: tcp}}}"

// Unsecured returns why a change would take TLS from the connections of a cluster
// that it leaves with endpoints, and an empty text if it would not. was is the
// cluster's configuration before the change, nil for none. TLS ends if the author
// asks for that by lbd.connect: not because the Cluster is gone, which leaves the
// defaults, or because its transport_socket is.
//
// A Cluster that is there and cannot be used takes no TLS away: its cluster has no
// connections at all.
func (g Guard) Unsecured(was *resource.Cluster, to View, cluster string) (why string) {
	if was == nil || was.Security == nil && (was.Connect != resource.ConnectTLS || g.TLS) {
		return ""
	}
	lost := "would be gone"
	if i, ok := to(resource.Key{Type: resource.TypeCluster, Name: cluster}); ok {
		is := i.Cluster
		if is == nil || is.Type == resource.ClusterAggregate || is.Security != nil || is.Connect != resource.ConnectDefault {
			return ""
		}
		lost = "would not ask for it any more"
	} else if _, ok := to(resource.Key{Type: resource.TypeAssignment, Name: cluster}); !ok {
		return "" // it is gone, or waits for a management server
	}
	return fmt.Sprintf("connections of cluster %s would lose the TLS that its Cluster asks for: the Cluster %s; %s", cluster, lost, plainCluster)
}

// unsecured are the losses of TLS by a change of the files' resources.
func (e *evaluation) unsecured(from, to map[resource.Key]resource.Item) []loss {
	names := map[string]bool{}
	for _, resources := range []map[resource.Key]resource.Item{from, to} {
		for key := range resources {
			if key.Type == resource.TypeCluster {
				names[key.Name] = true
			}
		}
	}
	o := e.files.options
	views := [][2]View{ // as losses has them
		{in(from), Over(in(to), o.Configured)},
		{Over(o.Pushed, in(from), o.Configured), Over(o.Pushed, in(to), o.Configured)},
	}
	var out []loss
	for _, name := range slices.Sorted(maps.Keys(names)) {
		for _, v := range views {
			was, _ := v[0](resource.Key{Type: resource.TypeCluster, Name: name})
			why := o.Guard.Unsecured(was.Cluster, v[1], name)
			if why == "" {
				continue
			}
			all := keys(v[0], name)
			maps.Copy(all, keys(v[1], name))
			out = append(out, loss{reason: why, clusters: []string{name}, keys: all})
			break
		}
	}
	return out
}
