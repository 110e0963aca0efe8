package admission

import (
	"fmt"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/files"
	"github.com/lbd-dev/lbd/xds/resource"
)

// View returns a resource as it is at some moment. ok is false if there is none.
type View func(key resource.Key) (item resource.Item, ok bool)

// Over returns a View of the first of several views that has a resource. A nil View has
// none.
func Over(views ...View) View {
	return func(key resource.Key) (resource.Item, bool) {
		for _, v := range views {
			if v == nil {
				continue
			}
			if i, ok := v(key); ok {
				return i, true
			}
		}
		return resource.Item{}, false
	}
}

// Endpoints is how many usable endpoints a cluster has. Known is false if they come from
// DNS, or may come from a management server.
type Endpoints struct {
	Usable int
	Known  bool
}

// None reports whether there are certainly none.
func (e Endpoints) None() bool { return e.Known && e.Usable == 0 }

// Guard compares the state before and after a change.
type Guard struct {
	// Server is true if a management server may provide what a View does not have.
	Server bool
	// TLS is true if the daemon's connect mode is tls: connections of a cluster
	// without configuration are secured, by the system's roots.
	TLS bool
}

// Endpoints counts the usable endpoints that a cluster has in a view. An AGGREGATE
// has those of its leaves (gRFC A37). A cluster that the view does not have, by
// configuration or assignment, has none.
func (g Guard) Endpoints(v View, cluster string) Endpoints {
	return g.endpoints(v, cluster, 0)
}

// maxDepth is gRPC's limit for the nesting of aggregates (gRFC A37).
const maxDepth = 16

func (g Guard) endpoints(v View, cluster string, depth int) Endpoints {
	if depth == maxDepth {
		return Endpoints{Known: true}
	}
	assignment := cluster
	if i, ok := v(resource.Key{Type: resource.TypeCluster, Name: cluster}); ok {
		switch {
		case i.Cluster == nil:
			return Endpoints{Known: true} // it cannot be used
		case i.Cluster.Type == resource.ClusterLogicalDNS:
			return Endpoints{}
		case i.Cluster.Type == resource.ClusterAggregate:
			return g.leaves(v, i.Cluster.Leaves, depth)
		}
		assignment = i.Cluster.AssignmentName()
	}
	i, ok := v(resource.Key{Type: resource.TypeAssignment, Name: assignment})
	switch {
	case !ok:
		return Endpoints{Known: !g.Server}
	case i.Assignment == nil:
		return Endpoints{Known: true}
	default:
		return Endpoints{Usable: i.Assignment.Usable(), Known: true}
	}
}

func (g Guard) leaves(v View, leaves []string, depth int) Endpoints {
	sum := Endpoints{Known: true}
	for _, leaf := range leaves {
		of := g.endpoints(v, leaf, depth+1)
		sum.Usable += of.Usable
		sum.Known = sum.Known && of.Known
	}
	return sum
}

// Emptied reports whether a change takes all usable endpoints from a cluster that
// exists before and after it. before is how many it had.
func (g Guard) Emptied(from, to View, cluster string) (before int, emptied bool) {
	before = g.Endpoints(from, cluster).Usable
	return before, before > 0 && g.Has(to, cluster) && g.Endpoints(to, cluster).None()
}

// Has reports whether a view has a cluster, by its configuration or by an
// assignment of its name.
func (Guard) Has(v View, cluster string) bool {
	_, configured := v(resource.Key{Type: resource.TypeCluster, Name: cluster})
	_, assigned := v(resource.Key{Type: resource.TypeAssignment, Name: cluster})
	return configured || assigned
}

// keys returns the resources that a cluster's endpoints depend on in a view.
func keys(v View, cluster string) map[resource.Key]bool {
	out := map[resource.Key]bool{}
	addKeys(out, v, cluster)
	return out
}

func addKeys(out map[resource.Key]bool, v View, cluster string) {
	key := resource.Key{Type: resource.TypeCluster, Name: cluster}
	if out[key] {
		return
	}
	out[key] = true
	assignment := cluster
	if i, ok := v(key); ok && i.Cluster != nil {
		for _, leaf := range i.Cluster.Leaves {
			addKeys(out, v, leaf)
		}
		assignment = i.Cluster.AssignmentName()
	}
	out[resource.Key{Type: resource.TypeAssignment, Name: assignment}] = true
}

// Check returns the clusters that valid resources leave without a usable endpoint. A push
// of them would be refused.
func Check(items []resource.Item) []decode.Problem {
	byKey := make(map[resource.Key]resource.Item, len(items))
	for _, i := range items {
		byKey[i.Key] = i
	}
	var problems []decode.Problem
	for _, i := range items {
		reason := ""
		switch {
		case i.Assignment != nil && i.Assignment.Usable() == 0:
			reason = "has no usable endpoints"
		case i.Cluster != nil && i.Cluster.Type == resource.ClusterEDS && i.Cluster.AssignmentName() != i.Cluster.Name:
			key := resource.Key{Type: resource.TypeAssignment, Name: i.Cluster.AssignmentName()}
			if a, ok := byKey[key]; ok && a.Assignment.Usable() == 0 {
				reason = fmt.Sprintf("takes its endpoints from %s, which has no usable endpoint", key)
			}
		}
		if reason != "" {
			problems = append(problems, decode.Problem{Resource: i.Key.String(), Field: i.Field, Reason: reason})
		}
	}
	return problems
}

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
			decoded.Items[i], warnings, _ = decode.Item(item, o)
			decoded.Warnings = append(decoded.Warnings, warnings...)
		}
		out[name] = &decoded
	}
	return out
}
