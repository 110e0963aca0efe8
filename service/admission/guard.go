package admission

import (
	"fmt"

	"github.com/lbd-dev/lbd/xds/decode"
	"github.com/lbd-dev/lbd/xds/resource"
)

// View returns a resource as it is at some moment. ok is false if there is none.
type View func(key resource.Key) (item resource.Item, ok bool)

// Over returns a View of the first of several views that has a resource.
func Over(views ...View) View {
	return func(key resource.Key) (resource.Item, bool) {
		for _, v := range views {
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
	was := g.Endpoints(from, cluster)
	if was.Usable == 0 || !g.Has(to, cluster) || !g.Endpoints(to, cluster).None() {
		return was.Usable, false
	}
	return was.Usable, true
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
	view := viewOf(items)
	var problems []decode.Problem
	for _, i := range items {
		if i.Assignment != nil && i.Assignment.Usable() == 0 {
			problems = append(problems, decode.Problem{
				Resource: i.Key.String(), Field: i.Field,
				Reason: "has no usable endpoints",
			})
			continue
		}
		if i.Cluster == nil || i.Cluster.Type != resource.ClusterEDS {
			continue
		}
		name := i.Cluster.AssignmentName()
		a, ok := view(resource.Key{Type: resource.TypeAssignment, Name: name})
		if ok && name != i.Cluster.Name && a.Assignment.Usable() == 0 {
			problems = append(problems, decode.Problem{
				Resource: i.Key.String(), Field: i.Field,
				Reason: fmt.Sprintf("takes its endpoints from ClusterLoadAssignment/%s, which has no usable endpoint", name),
			})
		}
	}
	return problems
}

func viewOf(items []resource.Item) View {
	byKey := make(map[resource.Key]resource.Item, len(items))
	for _, i := range items {
		byKey[i.Key] = i
	}
	return in(byKey)
}
