package admission

import (
	"fmt"

	"github.com/lbd-dev/lbd/xds/resource"
)

// plainCluster is how an author requests connections without TLS.
const plainCluster = "for connections without TLS give it a Cluster with metadata: {filter_metadata: {lbd: {connect: tcp}}}"

// Unsecured returns why a change would take TLS from the connections of a cluster
// that it leaves with endpoints, or an empty text if it would not. was is the
// cluster's configuration before the change, nil for none. Only lbd.connect may end
// TLS: not the removal of the Cluster, which leaves the defaults, or of its
// transport_socket.
//
// An invalid Cluster takes no TLS away: its cluster has no connections at all.
func (g Guard) Unsecured(was *resource.Cluster, to View, cluster string) (why string) {
	if was == nil || was.Security == nil && (was.Connect != resource.ConnectTLS || g.TLS) {
		return ""
	}
	lost := "the Cluster is removed"
	if i, ok := to(resource.Key{Type: resource.TypeCluster, Name: cluster}); ok {
		is := i.Cluster
		if is == nil || is.Type == resource.ClusterAggregate || is.Security != nil || is.Connect != resource.ConnectDefault {
			return ""
		}
		lost = "the new Cluster has no transport_socket"
	} else if _, ok := to(resource.Key{Type: resource.TypeAssignment, Name: cluster}); !ok {
		return "" // the cluster is removed, or waits for a management server
	}
	return fmt.Sprintf("cluster %s: the change disables TLS: %s; %s", cluster, lost, plainCluster)
}

// unsecured returns the losses of TLS by a change of the files' resources.
func (e *evaluation) unsecured(from, to map[resource.Key]resource.Item) []loss {
	var names []string
	for _, resources := range []map[resource.Key]resource.Item{from, to} {
		for key := range resources {
			if key.Type == resource.TypeCluster {
				names = append(names, key.Name)
			}
		}
	}
	o := e.files.options
	return lossesOf(names, []transition{ // a Cluster of the server counts if no file has one
		{in(from), Over(in(to), o.Configured)},
		{Over(o.Pushed, in(from), o.Configured), Over(o.Pushed, in(to), o.Configured)},
	}, func(t transition, name string) string {
		was, _ := t.from(resource.Key{Type: resource.TypeCluster, Name: name})
		return o.Guard.Unsecured(was.Cluster, t.to, name)
	})
}
