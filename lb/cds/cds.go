// Package cds is gRPC's cds policy: it builds a cluster's child from the
// cluster's and its endpoints' resources (gRFC A74, A75). The child of an aggregate
// is a priority policy over its leaves, each of which is a cds policy itself.
package cds

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/few"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errNoAssignment = errors.New("no endpoints are known yet")

// Builder returns the builder of cds policies, whose config is a *[policy.CDSConfig].
func Builder() policy.Builder {
	return policy.NewBuilder(policy.CDS, func(conn *policy.Conn) policy.Policy {
		return &cds{conn: conn, Switch: policy.NewSwitch(conn)}
	})
}

// cds belongs to the owner.
type cds struct {
	*policy.Switch // its child

	conn *policy.Conn

	applied    []part     // what the child was built from; nil without child
	priorities priorities // of a cluster with endpoints
	leaves     leaves     // of an aggregate
	err        error      // why there is no child
}

// part is a cluster that a child was built from, possibly a leaf of an aggregate.
type part struct {
	cluster    *resource.Cluster
	assignment *resource.Assignment
	first      int    // the number of its first priority
	leaf       string // its name, of a leaf
	skipped    string // why a leaf is skipped
}

func (b *cds) Update(given policy.Child) error {
	cfg, ok := given.Config.(*policy.CDSConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.CDS, given.Config)
	}
	root := cfg.XDS.Clusters.Get(cfg.Cluster)
	if root == nil {
		return fmt.Errorf("cluster %q is not in the config of %s", cfg.Cluster, cfg.XDS.Target)
	}
	switch {
	case root.Err != nil:
		b.fail(root.Err)
	case root.Pending:
		b.wait()
	case root.Cluster.Type == resource.ClusterAggregate:
		return b.updateAggregate(cfg, root)
	case root.Assignment == nil:
		b.fail(cmp.Or(root.AssignmentErr, errNoAssignment))
	default:
		is := part{cluster: root.Cluster, assignment: root.Assignment, first: cfg.First}
		b.apply([]part{is}, func() (policy.Child, error) { return b.build(root, cfg.First) })
	}
	return nil
}

// wait queues picks while resources are missing. A child that serves continues.
func (b *cds) wait() {
	if b.applied != nil {
		return
	}
	b.err = nil
	b.conn.UpdateState(balancer.State{ConnectivityState: connectivity.Connecting, Picker: policy.QueuePicker})
}

// fail closes the child, because the cluster cannot be used.
func (b *cds) fail(err error) {
	b.Switch.Close()
	same := b.err != nil && b.err.Error() == err.Error()
	b.applied, b.priorities, b.leaves, b.err = nil, priorities{}, nil, err
	if !same { // else nothing changed for picks
		b.conn.UpdateState(policy.Failure(err))
	}
}

// apply gives the child what build returns, unless the parts are the same.
func (b *cds) apply(parts []part, build func() (policy.Child, error)) {
	if slices.Equal(b.applied, parts) {
		return // nothing changed for picks
	}
	child, err := build()
	if err == nil {
		err = b.Switch.Update(child)
	}
	if err != nil {
		b.fail(err)
		return
	}
	b.applied, b.err = parts, nil
}

// build makes the child's config of a cluster with endpoints: outlier_detection and
// cluster_impl over its priorities (gRFC A75), even if outlier detection is not
// configured: then its config does not rebuild the tree.
func (b *cds) build(cc *resource.ClusterConfig, first int) (policy.Child, error) {
	children, localities, err := b.priorities.update(b.conn, cc)
	if err != nil {
		return policy.Child{}, err
	}
	b.leaves = nil
	config := &policy.ClusterImplConfig{
		Service:     cc.Cluster.ServiceKey(),
		MaxRequests: cc.Cluster.MaxRequests,
		FleetLimit:  cc.Cluster.FleetLimit,
		Connect:     cc.Cluster.Connect,
		Security:    cc.Cluster.Security,
		MaxBackoff:  cc.Cluster.MaxBackoff,
		Drops:       cc.Assignment.Drops,
		Localities:  cc.Assignment.Localities,
		Child: policy.Child{
			Policy: policy.Priority,
			Config: &policy.PriorityConfig{Cluster: cc.Cluster.Name, First: first, Children: children},
		},
	}
	if cc.Cluster.LRSToSelf {
		config.LoadMetrics = cc.Cluster.LoadMetrics
	}
	return policy.Child{
		Policy: policy.OutlierDetection,
		Config: &policy.OutlierDetectionConfig{
			OutlierDetection: cc.Cluster.OutlierDetection,
			Cluster:          cc.Cluster.Name,
			EndpointPolicy:   string(cc.Cluster.Policy.Endpoint()),
			Priorities:       localities,
			Child:            policy.Child{Policy: policy.ClusterImpl, Config: config},
		},
	}, nil
}

// Describe describes the child, or the error.
func (b *cds) Describe() policy.Node {
	if b.err != nil {
		return policy.Node{Policy: policy.CDS, State: policy.Failure(b.err).ConnectivityState, Err: b.err}
	}
	child := b.Switch.Describe()
	return policy.Node{Policy: policy.CDS, State: child.State, Err: child.Err, Child: &child}
}

func (b *cds) Summarize() policy.Summary {
	if b.err != nil {
		return policy.Summary{State: policy.Failure(b.err).ConnectivityState, Priority: -1}
	}
	return b.Switch.Summarize()
}

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
		cc := cfg.XDS.Clusters.Get(name)
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
				XDS: &resource.Config{Target: cfg.XDS.Target, Clusters: few.Of(map[string]*resource.ClusterConfig{p.leaf: configs[i]})},
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
		return cmp.Or(cc.AssignmentErr, errNoAssignment)
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
		out.sizes[le.Priority] += le.Usable()
	}
	return out
}
