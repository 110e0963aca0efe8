// Package cds is gRPC's cds policy: it builds a cluster's child from the
// cluster's and its endpoints' resources (gRFC A74, A75).
package cds

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"

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

	applied    *resource.ClusterConfig
	localities map[*resource.LocalityEndpoints]*policy.Locality
	names      names
	err        error // why there is no child
}

func (b *cds) UpdateClientConnState(s balancer.ClientConnState) error {
	cfg, ok := s.BalancerConfig.(*policy.CDSConfig)
	if !ok {
		return fmt.Errorf("%s: config is a %T", policy.CDS, s.BalancerConfig)
	}
	cc := cfg.XDS.Clusters[cfg.Cluster]
	if cc == nil {
		return fmt.Errorf("cluster %q is not in the config of %s", cfg.Cluster, cfg.XDS.Target)
	}
	switch {
	case cc.Err != nil:
		b.fail(cc.Err)
	case cc.Assignment == nil && cc.AssignmentErr != nil:
		b.fail(cc.AssignmentErr)
	case cc.Assignment == nil:
		b.fail(errNoAssignment)
	case b.applied != nil && b.applied.Cluster == cc.Cluster && b.applied.Assignment == cc.Assignment:
		// Nothing changed for picks.
	default:
		b.apply(cc)
	}
	return nil
}

// fail closes the child: a cluster that cannot be used has none.
func (b *cds) fail(err error) {
	b.child.Close()
	same := b.err != nil && b.err.Error() == err.Error()
	b.applied, b.localities, b.names, b.err = nil, nil, names{}, err
	if !same { // else nothing changed for picks
		b.conn.UpdateState(policy.Failure(err))
	}
}

func (b *cds) apply(cc *resource.ClusterConfig) {
	priorities, err := b.priorities(cc)
	if err == nil {
		err = b.child.Update(policy.Child{
			Policy: policy.ClusterImpl,
			Config: &policy.ClusterImplConfig{
				Service:     policy.ServiceKey{Cluster: cc.Cluster.Name, EDSServiceName: cc.Cluster.EDSServiceName},
				Drops:       cc.Assignment.Drops,
				MaxRequests: cc.Cluster.MaxRequests,
				Connect:     cc.Cluster.Connect,
				Child: policy.Child{
					Policy: policy.Priority,
					Config: &policy.PriorityConfig{Cluster: cc.Cluster.Name, Children: priorities},
				},
			},
		})
	}
	if err != nil && !errors.Is(err, balancer.ErrBadResolverState) {
		b.fail(err)
		return
	}
	b.applied, b.err = cc, nil
}

// priorities makes priority's children of the assignment's localities.
func (b *cds) priorities(cc *resource.ClusterConfig) ([]policy.PriorityChild, error) {
	byPriority := group(cc.Assignment.Localities)
	localities := make(map[*resource.LocalityEndpoints]*policy.Locality, len(cc.Assignment.Localities))
	children := make([]policy.PriorityChild, len(byPriority))
	b.names = b.names.next(byPriority)
	for i, ls := range byPriority {
		usable := make([]*policy.Locality, len(ls))
		size := 0
		for j, l := range ls {
			own := b.localities[l]
			if own == nil {
				own = policy.NewLocality(l)
			}
			localities[l] = own
			usable[j] = own
			size += len(own.Endpoints)
		}
		child, err := pick(cc.Cluster.Policy, usable)
		if err != nil {
			return nil, err
		}
		children[i] = policy.PriorityChild{Name: b.names.ordered[i], Child: child, Size: size}
	}
	b.localities = localities
	return children, nil
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
	child := policy.Child{Policy: string(p.Name)}
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
