// Package cds is gRPC's cds policy: it builds a cluster's child from the
// cluster's and its endpoints' resources (gRFC A74, A75).
package cds

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"

	"github.com/lbd-dev/lbd/lb/policy"
	"github.com/lbd-dev/lbd/xds/resource"
)

var errNoAssignment = errors.New("no endpoints are known yet")

// Builder builds cds policies, whose config is a [policy.CDSConfig].
type Builder struct{}

// Name returns "cds_experimental".
func (Builder) Name() string { return policy.CDS }

// Build returns a cds policy.
func (Builder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return policy.Build(cc, func(conn *policy.Conn) balancer.Balancer {
		return &cds{conn: conn, child: policy.NewSwitch(conn)}
	})
}

// cds belongs to the owner, all of it.
type cds struct {
	conn  *policy.Conn
	child *policy.Switch

	applied []part           // what the child was built from; nil without child
	leaves  map[string]*leaf // by cluster
	named   int              // leaves that were ever named
	err     error            // why there is no child
}

// part is one cluster of what a child is built from: the root, or a leaf.
type part struct {
	cluster    *resource.Cluster
	assignment *resource.Assignment
	unassigned string // why there is no assignment
}

// leaf is what cds remembers of a cluster with endpoints.
type leaf struct {
	localities map[*resource.LocalityEndpoints]*policy.Locality
	byID       map[resource.Locality]*policy.Locality // made of localities when it is needed
	names      names
}

func (b *cds) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(*policy.CDSConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.CDS, s.BalancerConfig)
	}
	root := cfg.XDS.Clusters[cfg.Cluster]
	if root == nil {
		return fmt.Errorf("cluster %q is not in the config of %s", cfg.Cluster, cfg.XDS.Target)
	}
	switch {
	case root.Err != nil:
		b.fail(root.Err)
	case root.Pending:
		b.wait()
	case root.Cluster.Type == resource.ClusterAggregate:
		leaves := make([]*resource.ClusterConfig, len(root.Leaves))
		for i, name := range root.Leaves {
			if leaves[i] = cfg.XDS.Clusters[name]; leaves[i] == nil {
				return fmt.Errorf("cluster %q, of which %q is made, is not in the config of %s", name, cfg.Cluster, cfg.XDS.Target)
			}
			if leaves[i].Err != nil {
				leaves[i] = &resource.ClusterConfig{Cluster: resource.DefaultCluster(name), AssignmentErr: leaves[i].Err}
			}
		}
		b.apply(root, leaves)
	case root.Assignment == nil:
		b.fail(whyUnassigned(root))
	default:
		b.apply(root, []*resource.ClusterConfig{root})
	}
	return nil
}

// whyUnassigned is why a cluster has no assignment.
func whyUnassigned(cc *resource.ClusterConfig) error {
	if cc.AssignmentErr != nil {
		return cc.AssignmentErr
	}
	return errNoAssignment
}

// wait queues picks until what the cluster needs is known. A child that serves
// goes on.
func (b *cds) wait() {
	if b.applied != nil {
		return
	}
	b.err = nil
	b.conn.UpdateState(balancer.State{ConnectivityState: connectivity.Connecting, Picker: policy.QueuePicker})
}

// fail closes the child: a cluster that cannot be used has none.
func (b *cds) fail(err error) {
	b.child.Close()
	same := b.err != nil && b.err.Error() == err.Error()
	b.applied, b.leaves, b.err = nil, nil, err
	if !same { // else nothing changed for picks
		b.conn.UpdateState(policy.Failure(err))
	}
}

// apply builds the child of the root's leaves, or of the root alone, unless it
// is built of the same already.
func (b *cds) apply(root *resource.ClusterConfig, leaves []*resource.ClusterConfig) {
	parts := []part{{cluster: root.Cluster, assignment: root.Assignment}}
	for _, l := range leaves {
		p := part{cluster: l.Cluster, assignment: l.Assignment}
		if l.Assignment == nil {
			p.unassigned = whyUnassigned(l).Error()
		}
		parts = append(parts, p)
	}
	if slices.Equal(b.applied, parts) {
		return // nothing changed for picks
	}
	child, err := b.build(root, leaves)
	if err == nil {
		err = b.child.Update(child)
	}
	if err != nil && !errors.Is(err, balancer.ErrBadResolverState) {
		b.fail(err)
		return
	}
	b.applied, b.err = parts, nil
}

// build makes the child's config: of a cluster with endpoints, outlier_detection
// and cluster_impl over its priorities; of an aggregate, the priorities of all its
// leaves in a row, each under an outlier_detection and a cluster_impl of its leaf
// (gRFC A75).
func (b *cds) build(root *resource.ClusterConfig, leaves []*resource.ClusterConfig) (policy.Child, error) {
	kept := make(map[string]*leaf, len(leaves))
	defer func() { b.leaves = kept }()
	aggregate := root.Cluster.Type == resource.ClusterAggregate
	var all []policy.PriorityChild
	for _, cc := range leaves {
		l := b.leaves[cc.Cluster.Name]
		if l == nil {
			l = &leaf{names: names{prefix: "priority-" + strconv.Itoa(b.named)}}
			b.named++
		}
		kept[cc.Cluster.Name] = l
		children, err := l.priorities(cc, root.Cluster.Policy, aggregate)
		if err != nil {
			return policy.Child{}, err
		}
		if !aggregate {
			return clusterChild(cc, policy.Child{
				Policy: policy.Priority,
				Config: &policy.PriorityConfig{Cluster: cc.Cluster.Name, Children: children},
			}), nil
		}
		for _, c := range children {
			c.Child = clusterChild(cc, c.Child)
			all = append(all, c)
		}
	}
	return policy.Child{
		Policy: policy.Priority,
		Config: &policy.PriorityConfig{Cluster: root.Cluster.Name, Children: all},
	}, nil
}

// clusterChild puts what holds for a cluster as a whole over inner. Those are always
// the same policies: outlier_detection that is configured anew rebuilds none.
func clusterChild(cc *resource.ClusterConfig, inner policy.Child) policy.Child {
	config := &policy.ClusterImplConfig{
		Service:     policy.ServiceKey{Cluster: cc.Cluster.Name, EDSServiceName: cc.Cluster.EDSServiceName},
		MaxRequests: cc.Cluster.MaxRequests,
		Connect:     cc.Cluster.Connect,
		Security:    cc.Cluster.Security,
		Child:       inner,
	}
	if cc.Assignment != nil {
		config.Drops, config.Localities = cc.Assignment.Drops, cc.Assignment.Localities
	}
	if cc.Cluster.LRSToSelf {
		config.LoadMetrics = cc.Cluster.LoadMetrics
	}
	return policy.Child{
		Policy: policy.OutlierDetection,
		Config: &policy.OutlierDetectionConfig{
			OutlierDetection: cc.Cluster.OutlierDetection,
			Cluster:          cc.Cluster.Name,
			Child:            policy.Child{Policy: policy.ClusterImpl, Config: config},
		},
	}
}

// priorities makes priority's children of a leaf's localities. A leaf of an
// aggregate has at least one, without endpoints where it has none: it fails, and
// the next leaf is tried (gRFC A37).
func (l *leaf) priorities(cc *resource.ClusterConfig, p resource.Policy, aggregate bool) ([]policy.PriorityChild, error) {
	var all []*resource.LocalityEndpoints
	if cc.Assignment != nil {
		all = cc.Assignment.Localities
	}
	byPriority := group(all)
	if aggregate && len(byPriority) == 0 {
		byPriority = [][]*resource.LocalityEndpoints{nil}
	}
	localities := make(map[*resource.LocalityEndpoints]*policy.Locality, len(all))
	children := make([]policy.PriorityChild, len(byPriority))
	l.names = l.names.next(byPriority)
	for i, ls := range byPriority {
		usable := make([]*policy.Locality, len(ls))
		size := 0
		var weights uint64
		for _, le := range ls {
			weights += uint64(le.Weight)
		}
		for j, le := range ls {
			own := l.localities[le]
			if own == nil {
				own = l.before(le.ID).Update(le)
			}
			own = own.Among(weights)
			localities[le] = own
			usable[j] = own
			size += len(own.Endpoints)
		}
		child, err := pick(p, usable)
		if err != nil {
			return nil, err
		}
		children[i] = policy.PriorityChild{Name: l.names.ordered[i], Child: child, Size: size}
		if cc.Assignment == nil {
			children[i].Err = whyUnassigned(cc)
		}
	}
	l.localities, l.byID = localities, nil
	return children, nil
}

// before returns what there was of a locality, in whichever priority.
func (l *leaf) before(id resource.Locality) *policy.Locality {
	if l.byID == nil {
		l.byID = make(map[resource.Locality]*policy.Locality, len(l.localities))
		for _, own := range l.localities {
			l.byID[own.ID] = own
		}
	}
	if own := l.byID[id]; own != nil {
		return own
	}
	return new(policy.Locality)
}

// pick makes the child that picks locality and endpoint as p says.
func pick(p resource.Policy, localities []*policy.Locality) (policy.Child, error) {
	if p.Name == resource.PolicyWRRLocality && p.Child != nil {
		endpoint, err := pick(*p.Child, nil)
		return policy.Child{
			Policy: policy.WRRLocality,
			Config: &policy.WRRLocalityConfig{Localities: localities, EndpointPolicy: endpoint},
		}, err
	}
	child := policy.Child{Policy: string(p.Name), Localities: localities}
	for _, l := range localities {
		child.Endpoints = append(child.Endpoints, l.Endpoints...)
	}
	switch {
	case p.Name == resource.PolicyRoundRobin:
	case p.WeightedRoundRobin != nil:
		child.Config = policy.WeightedRoundRobinConfig{WeightedRoundRobin: *p.WeightedRoundRobin}
	case p.LeastRequest != nil:
		child.Config = policy.LeastRequestConfig{LeastRequest: *p.LeastRequest}
	case p.RingHash != nil:
		child.Config = policy.RingHashConfig{RingHash: *p.RingHash}
	case p.PickFirst != nil:
		child.Config = policy.PickFirstConfig{PickFirst: *p.PickFirst}
	case p.Custom != "":
		child.Config = policy.CustomConfig{JSON: p.Custom}
	default:
		return policy.Child{}, fmt.Errorf("load balancing policy %q cannot pick endpoints", p.Name)
	}
	return child, nil
}

// group sorts the localities by priority, from 0 on.
func group(ls []*resource.LocalityEndpoints) [][]*resource.LocalityEndpoints {
	var out [][]*resource.LocalityEndpoints
	for _, l := range ls {
		for uint32(len(out)) <= l.Priority {
			out = append(out, nil)
		}
		out[l.Priority] = append(out[l.Priority], l)
	}
	return slices.Clip(out)
}

// ResolverError goes to the child.
func (b *cds) ResolverError(err error) { b.child.ResolverError(err) }

// UpdateSubConnState is not called: SubConns have listeners.
func (b *cds) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle goes to the child.
func (b *cds) ExitIdle() { b.child.ExitIdle() }

func (b *cds) Close() { b.child.Close() }

// Describe describes the child, or says why there is none.
func (b *cds) Describe() policy.Node {
	if b.err != nil {
		return policy.Node{Policy: policy.CDS, State: policy.Failure(b.err).ConnectivityState, Err: b.err}
	}
	child := b.child.Describe()
	return policy.Node{Policy: policy.CDS, State: child.State, Err: child.Err, Child: &child}
}

// Summarize is the child's.
func (b *cds) Summarize() policy.Summary {
	if b.err != nil {
		return policy.Summary{State: policy.Failure(b.err).ConnectivityState, Priority: -1}
	}
	return b.child.Summarize()
}
