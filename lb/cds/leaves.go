package cds

import (
	"fmt"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

// leaves has the leaves of an aggregate by cluster.
type leaves map[string]*leaf

// leaf is the number of endpoints in each priority of an assignment.
type leaf struct {
	assignment *resource.Assignment
	sizes      []int
}

// updateAggregate builds the child of an aggregate: a priority policy over its leaves
// (gRFC A75). The aggregate's own policy is ignored.
func (b *cds) updateAggregate(cfg *policy.CDSConfig, root *resource.ClusterConfig) error {
	parts := make([]part, 0, len(root.Leaves))
	configs := make([]*resource.ClusterConfig, 0, len(root.Leaves))
	kept := make(leaves, len(root.Leaves))
	first := cfg.First
	for _, name := range root.Leaves {
		cc := cfg.XDS.Clusters[name]
		if cc == nil {
			return fmt.Errorf("cluster %q, a leaf of aggregate %q, is not in the config of %s", name, cfg.Cluster, cfg.XDS.Target)
		}
		kept[name] = b.leaves[name].follow(cc.Assignment)
		p := part{cluster: cc.Cluster, assignment: cc.Assignment, first: first, leaf: name}
		if err := skipped(cc); err != nil {
			p.skipped = err.Error()
		}
		parts, configs = append(parts, p), append(configs, cc)
		first += len(kept[name].sizes)
	}
	b.apply(parts, func() (policy.Child, error) {
		b.priorities = priorities{}
		b.leaves = kept
		return policy.Child{
			Policy: policy.Priority,
			Config: &policy.PriorityConfig{Cluster: cfg.Cluster, First: cfg.First, Children: kept.children(cfg, parts, configs)},
		}, nil
	})
	return nil
}

// children makes a child of each leaf, with the config of its own cluster only: other
// clusters' configs do not stay in memory for it.
func (ls leaves) children(cfg *policy.CDSConfig, parts []part, configs []*resource.ClusterConfig) []policy.PriorityChild {
	out := make([]policy.PriorityChild, len(parts))
	for i, p := range parts {
		out[i] = policy.PriorityChild{
			Name: p.leaf,
			Leaf: &policy.Leaf{Sizes: ls[p.leaf].sizes, Err: skipped(configs[i])},
			Child: policy.Child{Policy: policy.CDS, Config: &policy.CDSConfig{
				Cluster: p.leaf, First: p.first,
				XDS: &resource.Config{Target: cfg.XDS.Target, Clusters: map[string]*resource.ClusterConfig{p.leaf: configs[i]}},
			}},
		}
		for _, n := range ls[p.leaf].sizes {
			out[i].Size += n
		}
	}
	return out
}

// skipped is why a leaf is skipped (gRFC A74), or nil.
func skipped(cc *resource.ClusterConfig) error {
	switch {
	case cc.Err != nil:
		return cc.Err
	case cc.Assignment == nil && !cc.Pending:
		return whyUnassigned(cc)
	default:
		return nil
	}
}

// follow returns the leaf of another assignment, which may be nil. It has at least one
// priority.
func (l *leaf) follow(a *resource.Assignment) *leaf {
	if l != nil && l.assignment == a {
		return l
	}
	out := &leaf{assignment: a, sizes: make([]int, 1)}
	if a == nil {
		return out
	}
	for _, le := range a.Localities {
		for len(out.sizes) <= int(le.Priority) {
			out.sizes = append(out.sizes, 0)
		}
		for _, e := range le.Endpoints {
			if e.Usable() {
				out.sizes[le.Priority]++
			}
		}
	}
	return out
}
