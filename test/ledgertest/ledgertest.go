// Package ledgertest makes the configs that tests of the ledger, and of what is built
// on it, apply to targets.
package ledgertest

import (
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

// Config returns the config of a cluster's own target.
func Config(cluster string, a *resource.Assignment) *resource.Config {
	return &resource.Config{
		Roots:    []string{cluster},
		Clusters: few.Of(map[string]*resource.ClusterConfig{cluster: {Cluster: resource.DefaultCluster(cluster), Assignment: a}}),
	}
}

// Assignment returns an assignment that has an endpoint in each locality.
func Assignment(cluster string, ids ...resource.Locality) *resource.Assignment {
	a := &resource.Assignment{Name: cluster}
	for i, id := range ids {
		e := &resource.Endpoint{Addresses: []string{string(rune('a' + i))}, Weight: 1, Locality: id}
		a.Localities = append(a.Localities, &resource.LocalityEndpoints{ID: id, Weight: 1, Endpoints: []*resource.Endpoint{e}})
	}
	return a
}

// Routed returns the config of a target whose one route draws among clusters.
func Routed(name string, clusters ...*resource.ClusterConfig) *resource.Config {
	prefix := "/"
	route := &resource.Route{Match: resource.RouteMatch{Prefix: &prefix}}
	config := &resource.Config{
		Target: name,
		Routing: &resource.Routing{
			VirtualHost: &resource.VirtualHost{Name: "all", Domains: []string{"*"}, Routes: []*resource.Route{route}},
			Listener:    &resource.Listener{Name: name},
		},
	}
	for _, cc := range clusters {
		route.Clusters = append(route.Clusters, resource.WeightedCluster{Name: cc.Cluster.Name, Weight: 1})
		route.TotalWeight++
		config.Roots = append(config.Roots, cc.Cluster.Name)
		config.Clusters.Set(cc.Cluster.Name, cc)
	}
	return config
}

// Usable returns the part of a config of a cluster with an endpoint.
func Usable(cluster string) *resource.ClusterConfig {
	return Config(cluster, Assignment(cluster, resource.Locality{Zone: cluster})).Clusters.Get(cluster)
}

// Aggregated adds to a config an aggregate and its one leaf.
func Aggregated(config *resource.Config, name string, leaf *resource.ClusterConfig) {
	root := &resource.ClusterConfig{Cluster: resource.DefaultCluster(name), Leaves: []string{leaf.Cluster.Name}}
	root.Cluster.Type = resource.ClusterAggregate
	config.Roots = append(config.Roots, name)
	config.Clusters.Set(name, root)
	config.Clusters.Set(leaf.Cluster.Name, leaf)
}
