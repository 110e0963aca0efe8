package resolver

import (
	"errors"
	"fmt"

	"github.com/lbd-dev/lbd/xds/resource"
)

// maxAggregateDepth bounds how deep aggregates may be made of aggregates (gRFC
// A37).
const maxAggregateDepth = 16

// need is something that a cluster is made of: one of these names.
type need struct {
	cluster    string
	assignment string
	host       string
}

// uses are the clusters that need something.
type uses map[need]map[string]bool

func needs(c *resource.Cluster) []need {
	switch c.Type {
	case resource.ClusterAggregate:
		var out []need
		for _, l := range c.Leaves {
			out = append(out, need{cluster: l})
		}
		return out
	case resource.ClusterLogicalDNS:
		return []need{{host: c.DNSHostname}}
	default:
		return []need{{assignment: c.AssignmentName()}}
	}
}

func (u uses) add(name string, c *resource.Cluster) {
	for _, n := range needs(c) {
		if u[n] == nil {
			u[n] = make(map[string]bool)
		}
		u[n][name] = true
	}
}

func (u uses) remove(name string, c *resource.Cluster) {
	for _, n := range needs(c) {
		delete(u[n], name)
		if len(u[n]) == 0 {
			delete(u, n)
		}
	}
}

// affected adds to out the clusters that a change of n concerns: those that need
// it, and those that need these. A cluster concerns itself.
func (u uses) affected(n need, out map[string]bool) {
	if n.cluster != "" {
		if out[n.cluster] {
			return
		}
		out[n.cluster] = true
	}
	for user := range u[n] {
		u.affected(need{cluster: user}, out)
	}
}

// expand adds to a config the clusters that an aggregate comes down to, depth
// first. One that is named twice counts where it is named first. An error of any
// is the aggregate's, as in gRPC.
func (r *Resolver) expand(config *resource.Config, root *resource.ClusterConfig) {
	seen := map[string]bool{root.Cluster.Name: true}
	var visit func(c *resource.Cluster, depth int) error
	visit = func(c *resource.Cluster, depth int) error {
		for _, name := range c.Leaves {
			if depth+1 >= maxAggregateDepth {
				return fmt.Errorf("aggregate cluster graph exceeds max depth (%d)", maxAggregateDepth)
			}
			if seen[name] {
				continue
			}
			seen[name] = true
			cc := r.cluster(name)
			switch {
			case cc == nil:
				return fmt.Errorf("cluster %q, of which the aggregate is made, is not known", name)
			case cc.Err != nil:
				return fmt.Errorf("cluster %q, of which the aggregate is made: %w", name, cc.Err)
			case cc.Cluster.Type == resource.ClusterAggregate:
				if err := visit(cc.Cluster, depth+1); err != nil {
					return err
				}
				continue
			}
			config.Clusters[name] = cc
			root.Leaves = append(root.Leaves, name)
			root.Pending = root.Pending || cc.Pending
			if cc.AssignmentFrom.Updated.After(root.AssignmentFrom.Updated) {
				root.AssignmentFrom = cc.AssignmentFrom
			}
		}
		return nil
	}
	if root.Err = visit(root.Cluster, 0); root.Err == nil && len(root.Leaves) == 0 {
		root.Err = errors.New("aggregate cluster graph has no leaf clusters")
	}
}
